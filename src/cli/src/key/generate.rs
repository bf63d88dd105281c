//! `--gen-keys` and `--gen-signature`: new pairs of keys, and the signature of the master's public key.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use saltern_config::{MasterConfig, SigningAlgorithm};
use saltern_crypto::{HashType, PrivateKey, SecretString, SigAlgo, clean_key};
use saltern_model::Compat;
use saltern_store::files::{self, Create};
use saltern_wire::msgpack::Value;

use super::error::KeyError;
use super::files::{KeyFiles, finger};
use crate::options::KeyOptions;

/// A key of 16384 bits has less than 14 KiB of PEM.
const MAX_KEY_BYTES: usize = 64 << 10;

/// Bits of a new key where nobody says how many.
const BITS: i64 = 2048;

/// Makes a pair of keys, unless there is one of this name; gives its fingerprint.
pub(super) fn keys(
    config: &MasterConfig,
    options: &KeyOptions,
    files: &KeyFiles,
    name: &str,
) -> Result<Value, KeyError> {
    let directory = options
        .gen_keys_dir
        .as_deref()
        .filter(|text| !text.is_empty());
    let directory = PathBuf::from(directory.unwrap_or("."));
    files::ensure_dir(&directory, 0o755)?;
    let path = directory.join(format!("{name}.pem"));
    let passphrase = passphrase(config);
    if files::read(&path, MAX_KEY_BYTES)?.is_none() {
        make(&path, options, files.compat(), passphrase.as_ref())?;
    }
    let public = path.with_extension("pub");
    let pem = files::read(&public, MAX_KEY_BYTES)?.unwrap_or_default();
    let sum = finger(files.compat(), &pem, HashType::Sha256)?;
    Ok(Value::from(sum))
}

/// Writes a new pair of keys: the private half for its owner only, the public half for all.
fn make(
    path: &Path,
    options: &KeyOptions,
    compat: Compat,
    passphrase: Option<&SecretString>,
) -> Result<PrivateKey, KeyError> {
    let bits = u32::try_from(options.keysize.unwrap_or(BITS)).unwrap_or(2048);
    let failed = |source| KeyError::Key {
        path: path.to_path_buf(),
        source,
    };
    let key = PrivateKey::generate(bits).map_err(failed)?;
    let text = key
        .to_pem(passphrase.map(SecretString::expose))
        .map_err(failed)?;
    files::write_atomic(path, text.expose().as_bytes(), Create::PRIVATE.mode(0o400))?;
    let public = format!("{}\n", key.public().pem());
    let public_path = path.with_extension("pub");
    files::write_atomic(&public_path, public.as_bytes(), public_file(compat))?;
    Ok(key)
}

/// A file that anybody may read; 3008 keeps these to their owner, too.
const fn public_file(compat: Compat) -> Create {
    Create::PRIVATE.mode(match compat {
        Compat::V3006 | Compat::V3007 => 0o644,
        Compat::V3008 => 0o400,
    })
}

fn passphrase(config: &MasterConfig) -> Option<SecretString> {
    let text = config.signing_key_pass.as_ref()?;
    Some(SecretString::new(text.expose().to_owned()))
}

/// Signs the master's public key; gives `True`, `False` where there is a signature already, or why
/// there is none.
pub(super) fn signature(
    config: &MasterConfig,
    options: &KeyOptions,
    files: &KeyFiles,
) -> Result<Value, KeyError> {
    let text = |option: &Option<String>| option.clone().filter(|text| !text.is_empty());
    let public = match text(&options.public) {
        Some(path) if !Path::new(&path).is_file() => {
            return Ok(format!("Public-key {path} does not exist").into());
        }
        Some(path) => Some(PathBuf::from(path)),
        None => Some(files.root().join("master.pub")).filter(|path| path.is_file()),
    };
    let private = match text(&options.private) {
        Some(path) if !Path::new(&path).is_file() => {
            return Ok(format!("Private-key {path} does not exist").into());
        }
        Some(path) => Some(PathBuf::from(path)),
        None => Some(files.root().join("master_sign.pem")).filter(|path| path.is_file()),
    };
    let passphrase = passphrase(config);
    let key = match private {
        Some(path) => read(&path, passphrase.as_ref())?,
        None if options.auto_create == Some(true) => {
            let name = format!("{}.pem", config.master_sign_key_name);
            make(
                &files.root().join(name),
                options,
                files.compat(),
                passphrase.as_ref(),
            )?
        }
        None => return Ok("No usable private-key found".into()),
    };
    let Some(public) = public else {
        return Ok("No usable public-key found".into());
    };
    let directory = text(&options.signature_path).map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| files.root().to_path_buf());
    let path = directory.join(&config.master_pubkey_signature);
    let text = files::read_text(&public, MAX_KEY_BYTES)?.unwrap_or_default();
    let signature = key.sign(
        algorithm(
            config.publish_signing_algorithm,
            files.compat(),
            config.fips_mode,
        ),
        clean_key(&text).as_bytes(),
    )?;
    let mut signature = base64::engine::general_purpose::STANDARD.encode(signature);
    signature.push('\n');
    let is_new = files::create_new(&path, signature.as_bytes(), public_file(files.compat()))?;
    Ok(Value::from(is_new))
}

/// The algorithm of that signature: 3008 takes the one of publications, 3006 and 3007 know SHA-1 alone
/// (`gen_signature` in `crypt.py`), which `fips_mode` does not allow.
fn algorithm(of_publications: SigningAlgorithm, compat: Compat, fips_mode: bool) -> SigAlgo {
    let is_chosen = compat == Compat::V3008 || fips_mode;
    match of_publications {
        SigningAlgorithm::Pkcs1v15Sha224 if is_chosen => SigAlgo::Pkcs1v15Sha224,
        _ => SigAlgo::Pkcs1v15Sha1,
    }
}

fn read(path: &Path, passphrase: Option<&SecretString>) -> Result<PrivateKey, KeyError> {
    let text = files::read_text(path, MAX_KEY_BYTES)?.unwrap_or_default();
    let text = SecretString::new(text);
    PrivateKey::from_pem(text.expose(), passphrase.map(SecretString::expose)).map_err(|source| {
        KeyError::Key {
            path: path.to_path_buf(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_has_the_algorithm_of_publications_in_3008_and_under_fips_mode() {
        use Compat::{V3006, V3007, V3008};
        use SigningAlgorithm::{Pkcs1v15Sha1, Pkcs1v15Sha224};
        for (of_publications, compat, fips_mode, is_sha224) in [
            (Pkcs1v15Sha224, V3006, false, false),
            (Pkcs1v15Sha224, V3007, false, false),
            (Pkcs1v15Sha224, V3008, false, true),
            (Pkcs1v15Sha224, V3006, true, true),
            (Pkcs1v15Sha1, V3008, false, false),
        ] {
            let found = algorithm(of_publications, compat, fips_mode);
            assert_eq!(
                found == SigAlgo::Pkcs1v15Sha224,
                is_sha224,
                "{compat:?} {fips_mode}"
            );
        }
    }
}
