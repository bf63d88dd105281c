//! Files that a site has its API serve: `static`, `app` and `favicon`.

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use saltern_base::blocking;

/// The largest file that is served.
const MAX_FILE: u64 = 32 << 20;

/// A file, with its content type.
pub(crate) struct SiteFile {
    pub(crate) content_type: &'static str,
    pub(crate) content: Vec<u8>,
}

/// The file of a path below a directory; `None` for what leaves it, or is none.
pub(crate) async fn below(dir: &Path, path: &str) -> Option<SiteFile> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.as_os_str().is_empty() || !path.components().all(is_plain) {
        return None;
    }
    let (dir, path) = (dir.to_owned(), dir.join(path));
    let found = blocking::run(move || {
        // A link may not lead out of the directory either.
        let (dir, path) = (fs::canonicalize(dir).ok()?, fs::canonicalize(path).ok()?);
        if path.starts_with(dir) {
            read(&path)
        } else {
            None
        }
    });
    found.await.ok().flatten()
}

/// A file of the configuration.
pub(crate) async fn named(path: PathBuf) -> Option<SiteFile> {
    let found = blocking::run(move || read(&path));
    found.await.ok().flatten()
}

fn read(path: &Path) -> Option<SiteFile> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut content = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_FILE + 1).read_to_end(&mut content).ok()?;
    let is_small = u64::try_from(content.len()).is_ok_and(|length| length <= MAX_FILE);
    is_small.then(|| SiteFile {
        content_type: content_type(path),
        content,
    })
}

fn content_type(path: &Path) -> &'static str {
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending.unwrap_or_default().to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html;charset=utf-8",
        "css" => "text/css;charset=utf-8",
        "js" | "mjs" => "text/javascript;charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" => "text/plain;charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "ico" => "image/vnd.microsoft.icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_outside_the_directory_are_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("static");
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("a.js"), "x").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        let served = below(&inside, "/a.js").await.unwrap();
        assert_eq!(served.content_type, "text/javascript;charset=utf-8");
        for path in [
            "../secret",
            "/../secret",
            "link",
            "",
            "/",
            ".",
            "none",
            "a.js/../../secret",
        ] {
            assert!(below(&inside, path).await.is_none(), "{path}");
        }
    }
}
