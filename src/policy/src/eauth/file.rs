//! The backend `file`: names and passwords in a file (`salt/auth/file.py`).
//!
//! `text`, plain or hashed, `htpasswd` and `htdigest`. The file is read for each log-in, so a user
//! removed from it is unknown at once. Of the hashes of `htpasswd` those are computed that need
//! nothing but a digest.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use saltern_crypto::ct_eq;
use saltern_wire::msgpack::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::crypt_md5;

/// The largest file that is read.
const FILE_BYTES: u64 = 16 << 20;

/// Why a file of passwords cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An option is missing or means nothing.
    #[error("external_auth: file: {0}")]
    Option(OptionError),
    /// The file cannot be read.
    #[error("cannot read \"{}\"", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Larger than any list of users.
    #[error("\"{}\" has more than {FILE_BYTES} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A line has too few fields; stock goes no further either.
    #[error("\"{}\" has a line without a field {field}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The number of the field, from one.
        field: usize,
    },
    /// A hash that is not computed here.
    #[error("the entry of a user is hashed with \"{0}\", which is not known here")]
    Hash(String),
}

/// Why an option of the backend is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OptionError {
    /// It has to be there.
    #[error("^{0} is missing")]
    Missing(&'static str),
    /// Nothing separates fields.
    #[error("^field_separator is empty")]
    Separator,
    /// Fields are counted from one.
    #[error("^{0} is not the number of a field")]
    Number(&'static str),
    /// A word without a meaning here.
    #[error("^{option} \"{word}\" is not known")]
    Unknown {
        /// The option.
        option: &'static str,
        /// The word.
        word: String,
    },
}

/// The backend `file`, or why its configuration cannot be used.
pub(super) struct PasswordFile(Result<Known, OptionError>);

struct Known {
    path: PathBuf,
    form: Form,
}

/// Format of a line.
enum Form {
    Text {
        separator: String,
        user: usize,
        password: usize,
        hash: TextHash,
    },
    Htpasswd,
    Htdigest {
        realm: String,
    },
}

/// How a password stands in a text file.
#[derive(Clone, Copy)]
enum TextHash {
    Plain,
    Md5,
    Sha256,
    Sha512,
}

impl PasswordFile {
    /// From the entries of the option that begin with `^`.
    pub(super) fn new(options: &Value) -> Self {
        Self(Known::read(options))
    }

    pub(super) fn knows(&self, user: &str, password: &str) -> Result<bool, FileError> {
        let known = self.0.as_ref();
        let known = known.map_err(|problem| FileError::Option(problem.clone()))?;
        let content = read(&known.path)?;
        let text = String::from_utf8_lossy(&content);
        match &known.form {
            Form::Text {
                separator,
                user: user_field,
                password: password_field,
                hash,
            } => {
                for line in text.lines() {
                    let fields: Vec<&str> = line.trim().split(separator.as_str()).collect();
                    let field = |number: usize| {
                        let missing = || FileError::Field {
                            path: known.path.clone(),
                            field: number,
                        };
                        number
                            .checked_sub(1)
                            .and_then(|place| fields.get(place))
                            .ok_or_else(missing)
                    };
                    let (name, secret) = (field(*user_field)?, field(*password_field)?);
                    if *name == user {
                        return Ok(hash.fits(password, secret));
                    }
                }
                Ok(false)
            }
            Form::Htpasswd => match entry(&text, &[user]) {
                Some(secret) => fits_htpasswd(password, secret),
                None => Ok(false),
            },
            Form::Htdigest { realm } => {
                let secret = entry(&text, &[user, realm]);
                let digest = hex(&Md5::digest(format!("{user}:{realm}:{password}")));
                Ok(secret.is_some_and(|secret| same(&digest, secret)))
            }
        }
    }
}

impl Known {
    fn read(options: &Value) -> Result<Self, OptionError> {
        let unknown = |option, word: &str| OptionError::Unknown {
            option,
            word: word.to_owned(),
        };
        let text = |name: &str| options.get(&format!("^{name}")).and_then(Value::as_str);
        let number = |name: &'static str, default: usize| {
            let value = options.get(&format!("^{name}"));
            let number = match value {
                None => Some(default),
                Some(Value::Str(text)) => text.parse().ok(),
                Some(value) => value.as_u64().and_then(|n| usize::try_from(n).ok()),
            };
            let number = number.filter(|number| *number > 0);
            number.ok_or(OptionError::Number(name))
        };
        let path = text("filename").ok_or(OptionError::Missing("filename"))?;
        let form = match text("filetype").unwrap_or("text") {
            "text" => Form::Text {
                separator: match text("field_separator").unwrap_or(":") {
                    "" => return Err(OptionError::Separator),
                    separator => separator.to_owned(),
                },
                user: number("username_field", 1)?,
                password: number("password_field", 2)?,
                hash: match text("hashtype").unwrap_or("plaintext") {
                    "plaintext" => TextHash::Plain,
                    "md5" => TextHash::Md5,
                    "sha256" => TextHash::Sha256,
                    "sha512" => TextHash::Sha512,
                    other => return Err(unknown("hashtype", other)),
                },
            },
            "htpasswd" => Form::Htpasswd,
            "htdigest" => Form::Htdigest {
                realm: text("realm")
                    .ok_or(OptionError::Missing("realm"))?
                    .to_owned(),
            },
            other => return Err(unknown("filetype", other)),
        };
        Ok(Self {
            path: path.into(),
            form,
        })
    }
}

impl TextHash {
    fn fits(self, password: &str, secret: &str) -> bool {
        match self {
            Self::Plain => same(password, secret),
            Self::Md5 => same(&hex(&Md5::digest(password)), secret),
            Self::Sha256 => same(&hex(&Sha256::digest(password)), secret),
            Self::Sha512 => same(&hex(&Sha512::digest(password)), secret),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::Io {
        path: path.to_path_buf(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut content = Vec::new();
    let read = file.take(FILE_BYTES + 1).read_to_end(&mut content);
    if read.map_err(failed)? as u64 > FILE_BYTES {
        return Err(FileError::TooLarge {
            path: path.to_path_buf(),
        });
    }
    Ok(content)
}

/// The secret in the line that begins with these fields; comments and blank lines are passed over.
fn entry<'a>(text: &'a str, key: &[&str]) -> Option<&'a str> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.starts_with('#'));
    lines.find_map(|line| {
        let mut fields = line.splitn(key.len() + 1, ':');
        let is_it = key.iter().all(|part| fields.next() == Some(part));
        fields.next().filter(|_| is_it)
    })
}

/// An entry of `htpasswd`: `{SHA}…` or `$apr1$…`.
fn fits_htpasswd(password: &str, secret: &str) -> Result<bool, FileError> {
    if let Some(digest) = secret.strip_prefix("{SHA}") {
        return Ok(same(&STANDARD.encode(Sha1::digest(password)), digest));
    }
    if let Some(rest) = secret.strip_prefix(crypt_md5::APACHE) {
        let Some((salt, _)) = rest.split_once('$') else {
            return Ok(false);
        };
        let computed = crypt_md5::apache(password.as_bytes(), salt.as_bytes());
        return Ok(same(&computed, secret));
    }
    // The name of the scheme, never the hash.
    let scheme = secret
        .strip_prefix('$')
        .and_then(|rest| rest.split_once('$'));
    let scheme = scheme.map_or("crypt", |(scheme, _)| scheme);
    Err(FileError::Hash(scheme.chars().take(16).collect()))
}

fn same(left: &str, right: &str) -> bool {
    ct_eq(left.as_bytes(), right.as_bytes())
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
