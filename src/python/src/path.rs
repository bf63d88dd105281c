//! `posixpath`: functions on text, which do not look at the file system.

/// `posixpath.normpath`: without `.`, without each `..` that can be taken away, and without double
/// slashes but for exactly two at the start.
#[must_use]
pub fn normpath(path: &str) -> String {
    let start = match path.bytes().take_while(|byte| *byte == b'/').count() {
        0 => "",
        2 => "//",
        _ => "/",
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                None if !start.is_empty() => {}
                _ => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    match (start, parts.is_empty()) {
        ("", true) => ".".to_owned(),
        _ => format!("{start}{}", parts.join("/")),
    }
}

/// `posixpath.join(base, path)`: an absolute path starts anew.
#[must_use]
pub fn join(base: &str, path: &str) -> String {
    if path.starts_with('/') || base.is_empty() {
        path.to_owned()
    } else if base.ends_with('/') {
        format!("{base}{path}")
    } else {
        format!("{base}/{path}")
    }
}

/// `posixpath.dirname`.
#[must_use]
pub fn dirname(path: &str) -> &str {
    let head = path
        .rfind('/')
        .map_or("", |at| path.get(..=at).unwrap_or_default());
    match head.trim_end_matches('/') {
        "" => head,
        bare => bare,
    }
}
