//! The origin of a clone: its URL, refspecs and credentials.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saltern_base::hex;
use sha2::{Digest as _, Sha256};

use super::command::Git;
use super::error::GitError;
use super::options::Parameters;

/// A source of one clone. It cannot be printed, because it may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    url: String,
    refspecs: Vec<String>,
    ssl_verify: bool,
    proxy: String,
    /// How many commits of each ref; `None` for all.
    depth: Option<u64>,
    auth: Auth,
    is_ssh: bool,
}

/// How ssh is called: it asks nobody, gives a host up that does not answer, and leaves no master
/// of a shared connection behind, which would outlive the fetch.
const SSH: &str = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=10 \
                   -o ServerAliveCountMax=3 -o ControlMaster=no -o ControlPath=none";

#[derive(Clone, PartialEq, Eq)]
enum Auth {
    /// The URL and the user's own configuration of git and ssh decide.
    None,
    /// A header with name and password, for this scheme and host.
    Header { host: String, value: String },
    /// A private key for ssh.
    Key(PathBuf),
}

/// Why nothing is fetched from a URL.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    /// It names no repository. Shown without name and password.
    #[error("\"{0}\" is no URL of a repository")]
    Malformed(String),
    /// Its transport is not one of those that only fetch.
    #[error("the transport \"{0}\" is not allowed")]
    Transport(String),
    /// Its host would be an option of ssh.
    #[error("the host of a URL cannot start with \"-\"")]
    Host,
}

/// How git reaches a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    File,
    Git,
    Http,
    Https,
    Ssh,
}

impl Origin {
    /// The source at `url`, with the parameters of its remote.
    ///
    /// # Errors
    /// [`GitError::Option`]: a URL of a kind that is not fetched from, or credentials that system
    /// git cannot use.
    pub(crate) fn new(url: &str, parameters: &Parameters<'_>) -> Result<Self, GitError> {
        let transport = Transport::of(url).map_err(|error| parameters.wrong("remotes", error))?;
        let refspecs = parameters.list("refspecs")?;
        if let Some(refspec) = refspecs.iter().find(|refspec| !is_refspec(refspec)) {
            let problem = format!("\"{refspec}\" does not go to refs/remotes/origin or refs/tags");
            return Err(parameters.wrong("refspecs", problem));
        }
        Ok(Self {
            url: url.to_owned(),
            refspecs,
            ssl_verify: parameters.flag("ssl_verify"),
            proxy: parameters.text("proxy")?,
            // Stock has a default of 1 that only its provider `gitcli` heeds; the others fetch all.
            depth: parameters
                .number_of("depth", parameters.written("depth"))?
                .filter(|depth| *depth > 0),
            auth: auth(url, transport, parameters)?,
            is_ssh: transport == Transport::Ssh,
        })
    }

    /// A name for the directory of the clone: the same for the same source, without its password.
    pub(super) fn directory(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.url.as_bytes());
        for refspec in &self.refspecs {
            hash.update([0]);
            hash.update(refspec.as_bytes());
        }
        hash.update(format!("\0{:?}", self.depth).as_bytes());
        let hash = hash.finalize();
        let mut name = hex(&hash);
        name.truncate(32);
        name
    }

    /// The URL without name and password, for messages.
    pub(super) fn shown(&self) -> String {
        shown(&self.url)
    }

    /// A text of git without the name and the password that it may repeat.
    pub(super) fn redacted(&self, text: &str) -> String {
        let secrets = [&self.url, &self.proxy].map(|url| secret_part(url));
        secrets
            .into_iter()
            .flatten()
            .fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// The call that fetches into a clone.
    pub(super) fn fetch(&self, git: Git) -> Git {
        let mut git = git
            .setting("remote.origin.url", &*self.url)
            .setting("http.sslVerify", self.ssl_verify.to_string())
            .setting("http.lowSpeedLimit", "1")
            .setting("http.lowSpeedTime", "30");
        for refspec in &self.refspecs {
            git = git.setting("remote.origin.fetch", &**refspec);
        }
        if !self.proxy.is_empty() {
            git = git.setting("http.proxy", &*self.proxy);
        }
        git = match &self.auth {
            Auth::None if self.is_ssh && !git.has_own_ssh() => git.env("GIT_SSH_COMMAND", SSH),
            Auth::None => git,
            Auth::Header { host, value } => {
                git.setting(format!("http.{host}.extraHeader"), &**value)
            }
            Auth::Key(key) => git.env("GIT_SSH_COMMAND", ssh_command(key)),
        };
        // By its progress one sees that a remote still answers.
        git = git.args(["fetch", "--progress", "--force", "--prune"]);
        if let Some(depth) = self.depth {
            git = git.args([format!("--depth={depth}").as_str()]);
        }
        git.args(["--", "origin"])
    }
}

impl Transport {
    fn of(url: &str) -> Result<Self, UrlError> {
        if url.is_empty() || url.starts_with('-') || url.contains(char::is_control) {
            return Err(UrlError::Malformed(shown(url)));
        }
        if url.starts_with('/') {
            return Ok(Self::File);
        }
        // `ext::` and its like name a program to run.
        let name = |letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter);
        if let Some((helper, _)) = url.split_once("::")
            && helper.chars().all(name)
        {
            return Err(UrlError::Transport(format!("{helper}::")));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return match url.split_once(':') {
                Some((host, path)) if is_scp_host(host) && !path.is_empty() => Ok(Self::Ssh),
                _ => Err(UrlError::Malformed(shown(url))),
            };
        };
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        if rest.starts_with('-') || host.starts_with('-') {
            return Err(UrlError::Host);
        }
        match scheme.to_ascii_lowercase().as_str() {
            "file" => Ok(Self::File),
            "git" => Ok(Self::Git),
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            "ssh" | "git+ssh" | "ssh+git" => Ok(Self::Ssh),
            other => Err(UrlError::Transport(other.to_owned())),
        }
    }
}

/// `host` or `user@host` of `host:path`.
fn is_scp_host(host: &str) -> bool {
    let host = host.split_once('@').map_or(host, |(_, host)| host);
    !host.is_empty() && !host.starts_with('-') && !host.contains('/')
}

/// Refs elsewhere could be those that git itself works with.
fn is_refspec(refspec: &str) -> bool {
    let refspec = refspec.strip_prefix('+').unwrap_or(refspec);
    match refspec.split_once(':') {
        Some((from, to)) => {
            !from.starts_with('-')
                && ["refs/remotes/origin/", "refs/tags/"]
                    .iter()
                    .any(|start| to.starts_with(start))
        }
        None => false,
    }
}

/// A URL, or a remote as it is written, without name and password, for messages.
pub(crate) fn shown(url: &str) -> String {
    match secret_part(url) {
        Some(secret) => url.replacen(secret, "***", 1),
        None => url.to_owned(),
    }
}

/// The user information of a URL, between `://` and `@`. A password with a slash in it makes an
/// invalid URL, but its secret is found all the same; so it is without `://`.
fn secret_part(url: &str) -> Option<&str> {
    let is_password = |secret: &&str| secret.contains(':');
    let Some((_, rest)) = url.split_once("://") else {
        let word = url.rsplit(char::is_whitespace).next().unwrap_or_default();
        let (secret, _) = word.split_once('@')?;
        return Some(secret).filter(is_password);
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let named = authority.rsplit_once('@').map(|(secret, _)| secret);
    let odd = || {
        let before = rest.rsplit_once('@').map(|(secret, _)| secret);
        before.filter(is_password)
    };
    named.or_else(odd).filter(|secret| !secret.is_empty())
}

fn ssh_command(key: &std::path::Path) -> String {
    let quoted = key.to_string_lossy().replace('\'', "'\\''");
    format!("{SSH} -o IdentitiesOnly=yes -i '{quoted}'")
}

/// The credentials of a remote, by the rules of stock's `verify_auth`.
fn auth(url: &str, transport: Transport, parameters: &Parameters<'_>) -> Result<Auth, GitError> {
    match transport {
        Transport::File | Transport::Git => Ok(Auth::None),
        Transport::Ssh => {
            let key = parameters.text("privkey")?;
            if key.is_empty() {
                return Ok(Auth::None);
            }
            if !parameters.text("passphrase")?.is_empty() {
                let problem = "system git cannot be given the passphrase of a key; use an \
                               ssh-agent, or a key without one";
                return Err(parameters.wrong("passphrase", problem));
            }
            let key = PathBuf::from(key);
            if !key.is_file() {
                let problem = format!("\"{}\" is no file", key.display());
                return Err(parameters.wrong("privkey", problem));
            }
            Ok(Auth::Key(key))
        }
        Transport::Http | Transport::Https => {
            let (user, password) = (parameters.text("user")?, parameters.text("password")?);
            if user.is_empty() && password.is_empty() {
                return Ok(Auth::None);
            }
            for (name, value) in [("user", &user), ("password", &password)] {
                if value.is_empty() {
                    return Err(parameters.wrong(name, "is missing beside the other"));
                }
            }
            if transport == Transport::Http && !parameters.flag("insecure_auth") {
                let problem = "a password is sent over http only if this is set";
                return Err(parameters.wrong("insecure_auth", problem));
            }
            let (scheme, rest) = url.split_once("://").unwrap_or_default();
            let authority = rest.split('/').next().unwrap_or_default();
            let host = authority
                .rsplit_once('@')
                .map_or(authority, |(_, host)| host);
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            Ok(Auth::Header {
                host: format!("{scheme}://{host}/"),
                value: format!("Authorization: Basic {encoded}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Transport, is_refspec, secret_part};

    #[test]
    fn only_transports_that_fetch_are_allowed() {
        for (url, expected) in [
            ("/srv/repo.git", Some(Transport::File)),
            ("file:///srv/repo.git", Some(Transport::File)),
            ("https://user@host/repo.git", Some(Transport::Https)),
            ("http://host/repo", Some(Transport::Http)),
            ("git://host/repo", Some(Transport::Git)),
            ("ssh://git@host:22/repo", Some(Transport::Ssh)),
            ("git@host:repo.git", Some(Transport::Ssh)),
            ("host:repo.git", Some(Transport::Ssh)),
            ("ext::sh -c id", None),
            ("fd::7", None),
            ("ftp://host/repo", None),
            ("-oProxyCommand=id", None),
            ("ssh://-oProxyCommand=id/x", None),
            ("ssh://user@-oProxyCommand=id/x", None),
            ("-x@host:repo", None),
            ("user@-x:repo", None),
            ("repo.git", None),
            ("https://host/a\nb", None),
            ("", None),
        ] {
            assert_eq!(Transport::of(url).ok(), expected, "{url}");
        }
    }

    #[test]
    fn refspecs_write_to_their_namespaces_only() {
        assert!(is_refspec("+refs/heads/*:refs/remotes/origin/*"));
        assert!(is_refspec("refs/tags/*:refs/tags/*"));
        for refspec in [
            "refs/heads/*",
            "+x:refs/heads/x",
            "-x:refs/tags/x",
            "--upload-pack=id",
        ] {
            assert!(!is_refspec(refspec), "{refspec}");
        }
    }

    #[test]
    fn url_password_is_detected() {
        assert_eq!(secret_part("https://u:p@host/x@y"), Some("u:p"));
        assert_eq!(secret_part("https://u:p/q@host/x"), Some("u:p/q"));
        assert_eq!(secret_part("master https://u:p@host/x"), Some("u:p"));
        assert_eq!(secret_part("master u:p@host/x"), Some("u:p"));
        for url in [
            "https://host/x@y",
            "git@host:repo.git",
            "/srv/repo",
            "https://@host/x",
        ] {
            assert_eq!(secret_part(url), None, "{url}");
        }
    }
}
