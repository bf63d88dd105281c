//! Files that a site has its API serve: `static`, `app` and `favicon`.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use saltern_base::blocking;
use saltern_base::log_throttle::LogThrottle;

/// The largest file that is served.
const MAX_FILE: u64 = 32 << 20;

/// Lines about files that cannot be read.
static UNREADABLE: LazyLock<LogThrottle> =
    LazyLock::new(|| LogThrottle::new(Duration::from_secs(60)));

/// A file, with its content type.
pub(crate) struct SiteFile {
    pub(crate) content_type: &'static str,
    pub(crate) content: Vec<u8>,
}

/// The file of a path below a directory; `None` for what leaves it, or is none.
///
/// # Errors
/// It is there and cannot be read, or there is no thread for that ([`io::ErrorKind::WouldBlock`]).
pub(crate) async fn below(dir: &Path, path: &str) -> io::Result<Option<SiteFile>> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.as_os_str().is_empty() || !path.components().all(is_plain) {
        return Ok(None);
    }
    let (dir, path) = (dir.to_owned(), dir.join(path));
    reported(path, move |path| {
        // A link may not lead out of the directory either.
        match (fs::canonicalize(dir), fs::canonicalize(path)) {
            (Ok(dir), Ok(path)) if path.starts_with(&dir) => read(&path),
            _ => Ok(None),
        }
    })
    .await
}

/// A file of the configuration.
///
/// # Errors
/// As of [`below`].
pub(crate) async fn named(path: PathBuf) -> io::Result<Option<SiteFile>> {
    reported(path, read).await
}

/// Reads a file, and says which one cannot be read.
async fn reported(
    path: PathBuf,
    read: impl FnOnce(&Path) -> io::Result<Option<SiteFile>> + Send + 'static,
) -> io::Result<Option<SiteFile>> {
    let held = path.clone();
    let found = blocking::run(move || read(&held)).await;
    let found = found.map_err(io::Error::from).flatten();
    if let Err(error) = &found
        && let Some(times) = UNREADABLE.record()
    {
        let path = path.display();
        tracing::warn!(%error, %path, times, "a file of the site's API cannot be read");
    }
    found
}

/// As in stock, what cannot be looked at is absent, whatever the error.
fn read(path: &Path) -> io::Result<Option<SiteFile>> {
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let mut content = Vec::new();
    let file = fs::File::open(path)?;
    file.take(MAX_FILE + 1).read_to_end(&mut content)?;
    let is_small = u64::try_from(content.len()).is_ok_and(|length| length <= MAX_FILE);
    Ok(is_small.then(|| SiteFile {
        content_type: content_type(path),
        content,
    }))
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
        let served = below(&inside, "/a.js").await.unwrap().unwrap();
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
            assert!(below(&inside, path).await.unwrap().is_none(), "{path}");
        }
        for path in ["a\0b", &"x".repeat(300)] {
            assert!(below(&inside, path).await.unwrap().is_none(), "{path}");
        }
    }

    #[tokio::test]
    async fn file_that_cannot_be_read_is_not_absent_and_one_that_cannot_be_found_is() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        assert!(below(dir.path(), "loop").await.unwrap().is_none());
        assert!(named(dir.path().join("loop")).await.unwrap().is_none());
        assert!(named(dir.path().join("none")).await.unwrap().is_none());
        // A file whose first byte nobody can read.
        let process = Path::new("/proc/self");
        assert!(below(process, "mem").await.is_err());
        assert!(named(process.join("mem")).await.is_err());
    }

    #[test]
    fn file_is_not_absent_where_no_thread_starts() {
        let runtime = blocking::without_threads().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.js"), "x").unwrap();
        let found = runtime.block_on(below(dir.path(), "a.js"));
        let error = found.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
