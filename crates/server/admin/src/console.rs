//! The web console: the files of a page that runs in the browser, at `/console/`.
//!
//! Owns: the files, which are in the binary, and the headers that confine them. The page is written
//! in `console/` at the root of the repository, and its built files are kept in `console/dist`;
//! docs/console.md describes both. All that it shows it asks of the same routes as any other
//! client, with the user's own credentials, so nothing here decides about rights.
//!
//! Invariants: a file is answered without credentials and shows nothing of the server but its
//! version and whether it is in development mode; no file is taken from the disk or from a path of
//! the network; names with a hash never change their content. Caller: `routes`.

use hyper::header::CONTENT_TYPE;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG,
    HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde_json::json;

use super::body::ReplyBody;
use super::message::{HttpReply, empty, json_reply, path_not_found};
use super::request::AdminRequest;
use super::state::AdminState;

/// A file of the console.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    /// Its content's hash, quoted.
    etag: &'static str,
    /// The name has the hash, so the content of this name never changes.
    is_immutable: bool,
    plain: &'static [u8],
    gzip: &'static [u8],
}

// Written by `npm run build` in `console/`: `ASSETS`, the table of files.
include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../console/dist/assets.in"));

const INDEX: &str = "index.html";

/// Own files only: no inline scripts or styles, no other site, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of each file.
const CONFINED: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The answer to `GET /` for a browser: where the console is. `None` for other clients.
pub(crate) fn welcome(headers: &HeaderMap) -> Option<HttpReply> {
    let accept = headers.get(ACCEPT)?.to_str().ok()?;
    if !accept.contains("text/html") {
        return None;
    }
    let mut reply = empty(StatusCode::SEE_OTHER);
    reply.headers_mut().insert(LOCATION, HeaderValue::from_static("/console/"));
    reply.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Some(reply)
}

pub(crate) fn serve(request: &AdminRequest) -> HttpReply {
    match request.segments()[1..] {
        [] => file(INDEX, request.headers()),
        ["about.json"] => about(&request.state),
        [name] => file(name, request.headers()),
        _ => path_not_found(),
    }
}

/// The page's data before login.
fn about(state: &AdminState) -> HttpReply {
    let mut reply = json_reply(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "development": state.server.access.users.is_development(),
    }));
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn file(name: &str, request: &HeaderMap) -> HttpReply {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return path_not_found();
    };
    let is_known = request.get(IF_NONE_MATCH).is_some_and(|known| names(known, asset.etag));
    let is_zipped = takes_gzip(request);
    let content = match (is_known, is_zipped) {
        (true, _) => None,
        (false, true) => Some(asset.gzip),
        (false, false) => Some(asset.plain),
    };
    let mut reply = Response::new(ReplyBody::File(content));
    if is_known {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(ETAG, HeaderValue::from_static(asset.etag));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    let caching =
        if asset.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    if is_zipped && !is_known {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for (name, value) in CONFINED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// True when a list of tags has this one, weak or strong.
fn names(list: &HeaderValue, etag: &str) -> bool {
    let Ok(list) = list.to_str() else { return false };
    list.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag)
}

/// True when the client reads gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    //! The table of files and the headers; `admin/tests/console.rs` asks a server.

    use super::*;

    /// All files together, as sent.
    const COMPRESSED_BYTES_MAX: usize = 300 * 1000;

    #[test]
    fn the_page_names_files_that_exist() {
        let sum: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(sum <= COMPRESSED_BYTES_MAX, "{sum} bytes");
        let index = ASSETS.iter().find(|asset| asset.name == INDEX).unwrap();
        assert!(!index.is_immutable);
        let text = std::str::from_utf8(index.plain).unwrap();
        let named: Vec<&str> = text
            .split('"')
            .filter_map(|part| part.strip_prefix("/console/"))
            .filter(|name| !name.is_empty())
            .collect();
        assert!(named.len() >= 2, "{named:?}");
        for name in named {
            assert!(ASSETS.iter().any(|asset| asset.name == name), "{name}");
        }
        for asset in ASSETS.iter().filter(|asset| asset.is_immutable) {
            assert!(asset.name.contains(&asset.etag.trim_matches('"')[..8]), "{}", asset.name);
        }
    }

    /// Write what this test expects when the language has new words.
    #[cfg(feature = "query")]
    #[test]
    fn the_query_page_has_the_words_of_the_language() {
        use oribi_query::statement_text::{function_names, keyword_names};

        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../console/src/query/words.json");
        let list = |words: Vec<&str>| format!("[\n    \"{}\"\n  ]", words.join("\",\n    \""));
        let keywords = keyword_names().collect();
        let mut functions: Vec<&str> = function_names().collect();
        functions.sort_unstable();
        functions.dedup();
        let expected = format!(
            "{{\n  \"keywords\": {},\n  \"functions\": {}\n}}\n",
            list(keywords),
            list(functions)
        );
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == expected, "write this to console/src/query/words.json:\n{expected}");
    }

    #[test]
    fn a_client_says_that_it_reads_gzip() {
        let takes = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            takes_gzip(&headers)
        };
        assert!(takes("gzip") && takes("br, GZIP;q=0.5") && !takes("gzip;q=0") && !takes("br"));
        assert!(!takes_gzip(&HeaderMap::new()));
        assert!(names(&HeaderValue::from_static("\"a\", W/\"b\""), "\"b\""));
        assert!(!names(&HeaderValue::from_static("\"a\""), "\"b\""));
    }
}
