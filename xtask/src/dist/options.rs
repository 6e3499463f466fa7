//! The command line of `cargo xtask dist`.

use anyhow::{Result, bail};

/// Help for the list of tasks.
pub(crate) const USAGE: &str = "\
  dist [--target TRIPLE] [--profile NAME] [--link static|dynamic] [--only KIND[,KIND...]]
       [--binaries static=DIR] [--binaries dynamic=DIR] [--pages-from FILE] [--out DIR] [--jobs N]
         builds and packs a release into target/packages/out: tarballs, deb, rpm, container image,
         SBOM, notes, checksums; KIND: tarball, deb, rpm, image, sbom, notes";

/// The only target whose standard library is tried; see docs/packages.md for others.
const TARGET_DEFAULT: &str = "x86_64-unknown-linux-gnu";

/// How the C library is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// The system's shared library.
    Dynamic,
    Static,
}

impl LinkKind {
    /// Both, in the order in which they are built.
    pub const ALL: [LinkKind; 2] = [LinkKind::Dynamic, LinkKind::Static];

    /// Its word on the command line and in paths.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Dynamic => "dynamic",
            LinkKind::Static => "static",
        }
    }

    fn parse(word: &str) -> Result<LinkKind> {
        match LinkKind::ALL.into_iter().find(|link| link.name() == word) {
            Some(link) => Ok(link),
            None => bail!("{word:?} is not a link: static or dynamic"),
        }
    }
}

/// A kind of package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageKind {
    Tarball,
    Deb,
    Rpm,
    Image,
    Sbom,
    Notes,
}

impl PackageKind {
    const ALL: [(PackageKind, &'static str); 6] = [
        (PackageKind::Tarball, "tarball"),
        (PackageKind::Deb, "deb"),
        (PackageKind::Rpm, "rpm"),
        (PackageKind::Image, "image"),
        (PackageKind::Sbom, "sbom"),
        (PackageKind::Notes, "notes"),
    ];

    fn parse(word: &str) -> Result<PackageKind> {
        match PackageKind::ALL.into_iter().find(|(_, name)| *name == word) {
            Some((kind, _)) => Ok(kind),
            None => bail!("{word:?} is not a kind of package\n\n{USAGE}"),
        }
    }
}

/// The parts to build and to pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DistOptions {
    pub target: String,
    pub profile: String,
    /// Directory below the root for the packages; emptied first.
    pub out: String,
    pub jobs: Option<String>,
    /// A binary that runs here and prints manual and completions, where the target's does not.
    pub pages_from: Option<String>,
    link: Option<LinkKind>,
    kinds: Vec<PackageKind>,
    binaries: Vec<(LinkKind, String)>,
}

impl DistOptions {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<DistOptions> {
        let mut options = DistOptions {
            target: TARGET_DEFAULT.to_owned(),
            profile: "dist".to_owned(),
            out: "target/packages/out".to_owned(),
            jobs: None,
            pages_from: None,
            link: None,
            kinds: PackageKind::ALL.map(|(kind, _)| kind).to_vec(),
            binaries: Vec::new(),
        };
        while let Some(flag) = arguments.next() {
            let Some(value) = arguments.next() else { bail!("{flag} wants a value\n\n{USAGE}") };
            match flag.as_str() {
                "--target" => options.target = value,
                "--profile" => options.profile = value,
                "--out" => options.out = value,
                "--jobs" => options.jobs = Some(value),
                "--pages-from" => options.pages_from = Some(value),
                "--link" => options.link = Some(LinkKind::parse(&value)?),
                "--only" => {
                    options.kinds =
                        value.split(',').map(PackageKind::parse).collect::<Result<_>>()?;
                }
                "--binaries" => {
                    let Some((link, directory)) = value.split_once('=') else {
                        bail!("--binaries wants static=DIR or dynamic=DIR, not {value:?}");
                    };
                    options.binaries.push((LinkKind::parse(link)?, directory.to_owned()));
                }
                _ => bail!("{flag} is not known\n\n{USAGE}"),
            }
        }
        Ok(options)
    }

    /// The links that the wanted packages need.
    pub fn links(&self) -> Vec<LinkKind> {
        let is_needed = |link: &LinkKind| match link {
            LinkKind::Dynamic => self.wants(PackageKind::Deb) || self.wants(PackageKind::Rpm),
            LinkKind::Static => self.wants(PackageKind::Image),
        };
        let is_chosen = |link: &LinkKind| self.link.is_none_or(|only| only == *link);
        LinkKind::ALL
            .into_iter()
            .filter(|link| is_chosen(link) && (self.wants(PackageKind::Tarball) || is_needed(link)))
            .collect()
    }

    /// Whether packages of a debug build are made, to be checked: small ones are not worth the
    /// time.
    pub fn is_check(&self) -> bool {
        self.profile == "dev"
    }

    pub fn wants(&self, kind: PackageKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The directory of binaries that are given instead of built.
    pub fn binaries(&self, link: LinkKind) -> Option<&str> {
        let given = self.binaries.iter().find(|(of, _)| *of == link);
        given.map(|(_, path)| path.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<DistOptions> {
        DistOptions::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn only_the_links_that_packages_need_are_built() {
        assert_eq!(parse("").unwrap().links(), LinkKind::ALL);
        assert_eq!(parse("--only deb,rpm").unwrap().links(), [LinkKind::Dynamic]);
        assert_eq!(parse("--only image").unwrap().links(), [LinkKind::Static]);
        assert_eq!(parse("--link static").unwrap().links(), [LinkKind::Static]);
        assert_eq!(parse("--only sbom,notes").unwrap().links(), []);
    }

    #[test]
    fn a_mistake_is_refused() {
        for words in ["--link musl", "--only snap", "--binaries oribi", "--out", "--colour red"] {
            assert!(parse(words).is_err(), "{words}");
        }
        let options = parse("--binaries static=/tmp/oribi").unwrap();
        assert_eq!(options.binaries(LinkKind::Static), Some("/tmp/oribi"));
        assert_eq!(options.binaries(LinkKind::Dynamic), None);
    }
}
