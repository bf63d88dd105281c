//! URLs of requests: http and https, with a host, a port and a path, and nothing else.

/// The parts of a URL that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) secure: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query, with the slash at their start.
    pub(super) path: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A name and a password in the URL are arguments of their own here.
        if authority.contains('@') || path.chars().any(|letter| letter.is_control()) {
            return None;
        }
        let default = if secure { 443 } else { 80 };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']')?;
                (host, after.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            Some(port) if !port.is_empty() => port.parse().ok()?,
            _ => default,
        };
        if host.is_empty() || host.contains(|letter: char| letter.is_control() || letter == ' ') {
            return None;
        }
        let path = match path.strip_prefix('/') {
            Some(_) => path.replace(' ', "%20"),
            None => format!("/{}", path.replace(' ', "%20")),
        };
        Some(Self {
            secure,
            host: host.to_owned(),
            port,
            path,
        })
    }

    pub(super) fn is_same_server(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }

    /// Where a redirect leads to.
    pub(super) fn joined(&self, to: &str) -> Option<Self> {
        if to.contains("://") {
            return Self::parse(to);
        }
        let scheme = if self.secure { "https" } else { "http" };
        if let Some(rest) = to.strip_prefix("//") {
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        let path = if to.starts_with('/') {
            to.to_owned()
        } else {
            let path = self.path.split('?').next().unwrap_or_default();
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{directory}/{to}")
        };
        Self::parse(&format!("{scheme}://{}{path}", self.authority()))
    }

    pub(super) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    #[test]
    fn urls_are_parsed() {
        let cases = [
            ("http://a", Some((false, "a", 80, "/"))),
            (
                "https://a.b:8443/x?y=1#z",
                Some((true, "a.b", 8443, "/x?y=1")),
            ),
            ("http://[::1]:8/", Some((false, "::1", 8, "/"))),
            ("http://a?x y", Some((false, "a", 80, "/?x%20y"))),
            ("ftp://a/", None),
            ("http:///x", None),
            ("http://user:word@a/", None),
            ("http://a/\r\nX: y", None),
            ("http://a:99999/", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(secure, host, port, path)| Url {
                secure,
                host: host.to_owned(),
                port,
                path: path.to_owned(),
            });
            assert_eq!(Url::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn redirects_are_resolved_against_the_url() {
        let base = Url::parse("http://a:1/x/y?z").expect("a URL");
        for (to, expected) in [
            ("/b", "http://a:1/b"),
            ("b", "http://a:1/x/b"),
            ("//c/d", "http://c/d"),
            ("https://e/", "https://e/"),
        ] {
            assert_eq!(base.joined(to), Url::parse(expected), "{to}");
        }
    }
}
