//! URLs of requests: http and https, with a host, a port and a path, and nothing else.

use saltern_base::percent_encoded;
use ureq::http::Uri;
use ureq::http::uri::Scheme;

/// Parses a URL that can be requested. Its scheme and the slash of its path are made explicit.
pub(super) fn parse(text: &str) -> Option<Uri> {
    let (scheme, rest) = text.split_once("://")?;
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A name and a password in the URL are arguments of their own here.
    if authority.contains('@') || path.chars().any(char::is_control) {
        return None;
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    let scheme = scheme.to_ascii_lowercase();
    let path = encoded(path);
    let url: Uri = format!("{scheme}://{authority}{slash}{path}")
        .parse()
        .ok()?;
    let is_known = url.scheme() == Some(&Scheme::HTTP) || url.scheme() == Some(&Scheme::HTTPS);
    let parsed = url.authority()?;
    // A port that is no number in range is not the default port.
    let port = authority.strip_prefix(parsed.host())?;
    let has_port = port.len() > 1;
    (is_known && !parsed.host().is_empty() && has_port == parsed.port_u16().is_some())
        .then_some(url)
}

/// The path with percent signs for what a request line cannot have.
fn encoded(path: &str) -> String {
    percent_encoded(path.as_bytes(), "!#$%&'()*+,-./:;=?@[\\]^_{|}~")
}

/// Whether it is TLS, the host without brackets, and the port. Who has these three alike is one
/// server.
pub(super) fn server(url: &Uri) -> (bool, &str, u16) {
    let is_secure = url.scheme() == Some(&Scheme::HTTPS);
    let default = if is_secure { 443 } else { 80 };
    let port = url.port_u16().unwrap_or(default);
    (is_secure, bare_host(url), port)
}

/// The host, of an IPv6 address without its brackets.
pub(super) fn bare_host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// The URL to which a redirect leads.
pub(super) fn joined(from: &Uri, to: &str) -> Option<Uri> {
    // A colon in the first segment ends a scheme; one behind a slash or in a query does not.
    let first = to.split(['/', '?', '#']).next().unwrap_or_default();
    if first.contains(':') {
        return parse(to);
    }
    let scheme = from.scheme_str()?;
    if let Some(rest) = to.strip_prefix("//") {
        return parse(&format!("{scheme}://{rest}"));
    }
    let authority = from.authority()?;
    let path = match to.starts_with('/') {
        true => to.to_owned(),
        false => {
            let directory = from.path().rsplit_once('/');
            let directory = directory.map_or("", |(directory, _)| directory);
            format!("{directory}/{to}")
        }
    };
    parse(&format!("{scheme}://{authority}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let cases = [
            ("http://a", Some((false, "a", 80, "/"))),
            (
                "https://a.b:8443/x?y=1#z",
                Some((true, "a.b", 8443, "/x?y=1")),
            ),
            ("HTTPS://a/", Some((true, "a", 443, "/"))),
            ("http://[::1]:8/", Some((false, "::1", 8, "/"))),
            ("http://[::1]/", Some((false, "::1", 80, "/"))),
            ("http://a?x y", Some((false, "a", 80, "/?x%20y"))),
            (
                "http://a/<é>%20",
                Some((false, "a", 80, "/%3C%C3%A9%3E%20")),
            ),
            ("ftp://a/", None),
            ("http:///x", None),
            ("http://user:word@a/", None),
            ("http://a/\r\nX: y", None),
            ("http://a b/", None),
            ("http://a:99999/", None),
            ("http://a:x/", None),
        ];
        for (text, expected) in cases {
            let parsed = parse(text);
            let parts = parsed.as_ref().map(|url| {
                let (is_secure, host, port) = server(url);
                let path = url.path_and_query().map_or("", |path| path.as_str());
                (is_secure, host, port, path)
            });
            assert_eq!(parts, expected, "{text}");
        }
    }

    #[test]
    fn redirects_are_resolved_against_the_url() {
        let base = parse("http://a:1/x/y?z").expect("a URL");
        for (to, expected) in [
            ("/b", "http://a:1/b"),
            ("b", "http://a:1/x/b"),
            ("//c/d", "http://c/d"),
            ("https://e/", "https://e/"),
            ("/in?to=http://f/", "http://a:1/in?to=http://f/"),
        ] {
            assert_eq!(joined(&base, to), parse(expected), "{to}");
        }
        assert_eq!(joined(&base, "ftp://a/"), None);
    }
}
