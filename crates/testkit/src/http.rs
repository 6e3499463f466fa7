//! A tiny blocking HTTP/1.1 client for the admin interface: one request, one connection.
//!
//! It supports only what the tests need: Basic credentials, form and JSON bodies, answers with a
//! length, in chunks or until the end of the connection. It follows no redirects and keeps no
//! connection alive. Answers are limited in size, because the server is under test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, bail};

use crate::poll::PATIENCE;

/// Largest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Address and credentials of requests.
#[derive(Clone, Debug)]
pub struct HttpClient {
    host: Ipv4Addr,
    port: u16,
    credentials: Option<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct HttpResponse {
    pub status: u16,
    /// Header fields in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body after removing any transfer coding.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The body as text, invalid bytes replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// First value of a header field; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl HttpClient {
    /// A client of the admin interface on a loopback port, without credentials.
    pub fn new(port: u16) -> HttpClient {
        HttpClient { host: Ipv4Addr::LOCALHOST, port, credentials: None }
    }

    /// The same client, of another host.
    pub fn at(self, host: Ipv4Addr) -> HttpClient {
        HttpClient { host, ..self }
    }

    /// The same client with Basic credentials.
    pub fn with_credentials(mut self, user: &str, password: &str) -> HttpClient {
        self.credentials = Some((user.to_owned(), password.to_owned()));
        self
    }

    pub fn get(&self, path: &str) -> Result<HttpResponse> {
        self.request("GET", path, "", b"")
    }

    pub fn delete(&self, path: &str) -> Result<HttpResponse> {
        self.request("DELETE", path, "", b"")
    }

    /// `POST path` with a form, as the SDKs' managers send it. Names and values are escaped here.
    pub fn post_form(&self, path: &str, fields: &[(&str, &str)]) -> Result<HttpResponse> {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
            .collect();
        self.request("POST", path, "application/x-www-form-urlencoded", pairs.join("&").as_bytes())
    }

    /// Sends `GET path` and returns the connection, of which nothing is read.
    pub fn begin_get(&self, path: &str) -> Result<TcpStream> {
        self.send("GET", path, "", b"")
    }

    /// One request with a body of the given type; an empty type sends no type.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<HttpResponse> {
        let stream = self.send(method, path, content_type, body)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context("cannot read the answer")?;
        parse(&answer).with_context(|| format!("{method} {path}"))
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<TcpStream> {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.host,
            self.port,
            body.len()
        );
        if !content_type.is_empty() {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        if let Some((user, password)) = &self.credentials {
            let token = base64(format!("{user}:{password}").as_bytes());
            head.push_str(&format!("Authorization: Basic {token}\r\n"));
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect((self.host, self.port))
            .with_context(|| format!("cannot connect to admin port {}", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        Ok(stream)
    }
}

fn parse(answer: &[u8]) -> Result<HttpResponse> {
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let split = split.context("the answer has no end of headers")?;
    let head = std::str::from_utf8(&answer[..split]).context("the headers are not text")?;
    let body = &answer[split + 4..];
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("bad status line {status_line:?}"))?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut response = HttpResponse { status, headers, body: Vec::new() };
    response.body = if response.header("transfer-encoding") == Some("chunked") {
        unchunk(body)?
    } else if let Some(length) = response.header("content-length") {
        let length: usize = length.parse().context("bad content-length")?;
        body.get(..length).context("the body is shorter than announced")?.to_vec()
    } else {
        body.to_vec()
    };
    Ok(response)
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|window| window == b"\r\n");
        let line_end = line_end.context("a chunk has no size line")?;
        let size = std::str::from_utf8(&rest[..line_end]).context("a chunk size is not text")?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
            .with_context(|| format!("bad chunk size {size:?}"))?;
        rest = &rest[line_end + 2..];
        if size == 0 {
            return Ok(body);
        }
        if rest.len() < size + 2 {
            bail!("a chunk is shorter than announced");
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

/// Percent-escapes everything but unreserved characters.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Standard base64 with padding (RFC 4648 section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            if position <= chunk.len() {
                let index = (group >> (18 - 6 * position)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{base64, escape, parse};

    #[test]
    fn base64_pads_as_the_rfc_says() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn all_http_body_framings_are_read() {
        let answer = |head: &str, body: &str| {
            parse(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}").as_bytes())
        };
        assert_eq!(answer("Content-Length: 3\r\n", "abcX").unwrap().text(), "abc");
        let chunked = "2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(answer("Transfer-Encoding: chunked\r\n", chunked).unwrap().text(), "abc");
        assert_eq!(answer("", "abc").unwrap().text(), "abc");
        assert!(answer("Content-Length: 9\r\n", "abc").is_err());
        assert!(answer("Transfer-Encoding: chunked\r\n", "ff\r\nab").is_err());
        assert!(parse(b"nonsense").is_err());
    }

    #[test]
    fn forms_are_escaped() {
        assert_eq!(escape("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
