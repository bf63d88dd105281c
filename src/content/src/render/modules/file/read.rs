//! Content of files: `file.read`, `file.contains`, `file.search`, `file.grep`, hashes.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use saltern_python::expression::{Expression, ExpressionFlags};
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use super::{MAX_FILE_BYTES, MAX_HASHED_BYTES, bytes_of, io_error, open, path_of, refused};
use crate::render::functions::{CallArgs, CallError, Registry};
use crate::render::jinja::filters;
use crate::render::modules::hashutil::Hasher;
use crate::render::process::{self, Errors};

/// The longest time of one `grep`.
const GREP_TIME: Duration = Duration::from_secs(30);

type Called = Result<Value, CallError>;

pub(super) fn add(registry: &mut Registry) {
    registry.add("file.read", |args| {
        let path = path_of(&args)?;
        let bytes = bytes_of(&path)?;
        if args.flag(1, "binary", false) {
            return Ok(Value::Bin(bytes.into()));
        }
        String::from_utf8(bytes).map(Value::from).map_err(|_| {
            let name = path.display();
            CallError::Failed(format!("'utf-8' codec can't decode \"{name}\""))
        })
    });
    registry.add("file.seek_read", |args| seek_read(&args));
    registry.add("file.contains", |args| {
        let wanted = args.need_text(1, "text")?;
        contains(&args, |text| text.contains(wanted.trim()))
    });
    registry.add("file.contains_glob", |args| {
        let wanted = args.need_text(1, "glob_expr")?;
        let wanted = Glob::new(&wanted);
        contains(&args, |text| wanted.matches(text))
    });
    registry.add("file.contains_regex", |args| {
        let pattern = compiled(&args.need_text(1, "regex")?, ExpressionFlags::default())?;
        let leading = args.text(2, "lchar").unwrap_or_default();
        contains(&args, |text| {
            text.split_inclusive('\n').any(|line| {
                let line = line.trim_start_matches(|letter| leading.contains(letter));
                pattern.is_match(line).unwrap_or(false)
            })
        })
    });
    registry.add("file.search", |args| search(&args));
    registry.add("file.grep", |args| grep(&args));
    registry.add("file.get_hash", |args| {
        let form = args.text(1, "form").unwrap_or_else(|| "sha256".to_owned());
        hash(&path_of(&args)?, &form).map(Value::from)
    });
    registry.add("file.get_sum", |args| {
        let form = args.text(1, "form").unwrap_or_else(|| "sha256".to_owned());
        let path = path_of(&args)?;
        if !path.is_file() {
            return Ok(Value::from("File not found"));
        }
        hash(&path, &form).map(Value::from)
    });
    registry.add("file.check_hash", |args| check_hash(&args));
}

fn compiled(text: &str, flags: ExpressionFlags) -> Result<Expression, CallError> {
    let pattern = filters::compile(text, flags);
    pattern.map_err(|_| CallError::Failed(format!("\"{text}\" is no regular expression")))
}

/// Whether the text of a file passes; a file that is not there or not readable does not.
fn contains(args: &CallArgs, passes: impl Fn(&str) -> bool) -> Called {
    let path = path_of(args)?;
    if !path.is_file() {
        return Ok(Value::Bool(false));
    }
    match bytes_of(&path) {
        Ok(bytes) => Ok(Value::Bool(passes(&String::from_utf8_lossy(&bytes)))),
        Err(CallError::Failed(_)) => Ok(Value::Bool(false)),
        Err(too_long) => Err(too_long),
    }
}

fn search(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    let pattern = args.need_text(1, "pattern")?;
    if !path.exists() {
        if args.flag(4, "ignore_if_missing", false) {
            return Ok(Value::Bool(false));
        }
        return Err(refused(format!("File not found: {}", path.display())));
    }
    if !path.is_file() {
        return Err(refused(format!(
            "The path {} is not a file.",
            path.display()
        )));
    }
    // Stock's default flag: `^` and `$` are the ends of lines.
    let flags = ExpressionFlags {
        ignores_case: false,
        is_multiline: true,
    };
    let pattern = compiled(&pattern, flags)?;
    let bytes = bytes_of(&path)?;
    let found = pattern.is_match(String::from_utf8_lossy(&bytes).as_ref());
    Ok(Value::Bool(found.unwrap_or(false)))
}

/// Runs `grep` as stock does, without a shell.
fn grep(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    let pattern = args.need_text(1, "pattern")?;
    let mut command = Command::new("grep");
    command.env("LC_ALL", "C.UTF-8");
    for option in args.positional.iter().skip(2) {
        let option = option.as_str().unwrap_or_default();
        if option.contains(char::is_whitespace) {
            return Err(refused(format!(
                "Passing multiple command line arguments in a single string is not supported, \
                 please pass the following arguments separately: {option}"
            )));
        }
        command.arg(option);
    }
    command.arg(pattern);
    match super::find::globbed(&path.to_string_lossy())? {
        paths if paths.is_empty() => command.arg(&path),
        paths => command.args(paths),
    };
    let done = process::run_with(
        command,
        Vec::new(),
        GREP_TIME,
        MAX_FILE_BYTES,
        Errors::Apart,
    )
    .map_err(|error| CallError::Refused(error.to_string()))?;
    Ok(crate::render::modules::commands::all_of(&done))
}

fn seek_read(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    let number = |index, name| {
        let number = args.get(index, name).and_then(Value::as_i64);
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| CallError::Failed(format!("missing a required argument: '{name}'")))
    };
    let (size, offset) = (number(1, "size")?, number(2, "offset")?);
    let mut bytes = Vec::new();
    let mut read = || {
        let mut file = open(&path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.take(size.min(MAX_FILE_BYTES)).read_to_end(&mut bytes)
    };
    read().map_err(|error| io_error(&error, &path))?;
    Ok(Value::Bin(bytes.into()))
}

/// The digest of a file, as hexadecimal digits.
pub(crate) fn hash(path: &Path, form: &str) -> Result<String, CallError> {
    let mut hasher =
        Hasher::new(form).ok_or_else(|| CallError::Failed(format!("Invalid hash type: {form}")))?;
    let mut file = open(path).map_err(|error| io_error(&error, path))?;
    let mut left = MAX_HASHED_BYTES;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file
            .read(&mut buffer)
            .map_err(|error| io_error(&error, path))?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        left = left.checked_sub(count as u64).ok_or_else(|| {
            let name = path.display();
            refused(format!(
                "the file \"{name}\" has more than {MAX_HASHED_BYTES} bytes"
            ))
        })?;
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
}

fn check_hash(args: &CallArgs) -> Called {
    let path = path_of(args)?;
    let wanted = args.need_text(1, "file_hash")?;
    let (form, digest) = match wanted.split_once(':').or_else(|| wanted.split_once('=')) {
        Some((form, digest)) => (form, digest),
        None => {
            let forms = [
                (32, "md5"),
                (40, "sha1"),
                (56, "sha224"),
                (64, "sha256"),
                (96, "sha384"),
                (128, "sha512"),
            ];
            let form = forms.iter().find(|(length, _)| *length == wanted.len());
            match form {
                Some((_, form)) => (*form, wanted.as_str()),
                None => {
                    return Err(refused(format!(
                        "Hash {wanted} (length: {}) could not be matched to a supported hash type",
                        wanted.len()
                    )));
                }
            }
        }
    };
    Ok(Value::Bool(hash(&path, form)? == digest))
}
