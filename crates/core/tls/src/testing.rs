//! A test authority, and certificates that it issues.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};

/// Issues certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The subject of a certificate.
#[derive(Debug, Clone, Default)]
pub struct Owner {
    /// Common name.
    pub common_name: String,
    /// Host names and addresses.
    pub hosts: Vec<String>,
    /// Mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// The certificate has expired.
    pub has_expired: bool,
    /// The certificate is for a client, not a server.
    pub is_client: bool,
}

/// A certificate and its key in PEM.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Authority {
    /// An authority with a new key.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("the system has randomness");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("the fields are sound");
        Authority { issuer }
    }

    /// The authority's certificate in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes the authority's certificate to a file.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.pem()).expect("the file can be written");
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, owner: &Owner) -> IssuedCertificate {
        let mut params =
            CertificateParams::new(owner.hosts.clone()).expect("host names are plain text");
        params.distinguished_name.push(DnType::CommonName, owner.common_name.as_str());
        let ia5 = |name: &String| name.as_str().try_into().expect("names are plain text");
        params.subject_alt_names.extend(owner.emails.iter().map(|n| SanType::Rfc822Name(ia5(n))));
        params.subject_alt_names.extend(owner.uris.iter().map(|name| SanType::URI(ia5(name))));
        params.extended_key_usages = vec![match owner.is_client {
            true => ExtendedKeyUsagePurpose::ClientAuth,
            false => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        if owner.has_expired {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().expect("the system has randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("the fields are sound");
        IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Owner {
    /// A server at this host and at the loopback addresses.
    pub fn server(host: &str) -> Owner {
        Owner {
            common_name: host.to_owned(),
            hosts: vec![host.to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()],
            ..Owner::default()
        }
    }

    /// A client of this name.
    pub fn client(name: &str) -> Owner {
        Owner { common_name: name.to_owned(), is_client: true, ..Owner::default() }
    }

    /// The same, but expired.
    pub fn expired(self) -> Owner {
        Owner { has_expired: true, ..self }
    }
}

impl IssuedCertificate {
    /// Writes both to files, the key first, so that a reader of the certificate also finds its key.
    pub fn write(&self, certificate: &Path, key: &Path) {
        std::fs::write(key, &self.key).expect("the file can be written");
        std::fs::write(certificate, &self.certificate).expect("the file can be written");
    }
}
