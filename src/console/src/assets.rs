//! Style sheet, script and icon, embedded in the program. Their names have a hash of their content in
//! them, so browsers keep them for ever and never have an old one.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use saltern_base::hex;
use sha2::{Digest, Sha256};

/// An embedded file.
struct Asset {
    name: String,
    content_type: &'static str,
    content: Bytes,
}

impl Asset {
    fn new(stem: &str, suffix: &str, content_type: &'static str, content: &'static [u8]) -> Self {
        let hash = hex(&Sha256::digest(content));
        let hash = hash.get(..12).unwrap_or_default();
        Self {
            name: format!("{stem}.{hash}.{suffix}"),
            content_type,
            content: Bytes::from_static(content),
        }
    }
}

/// The style sheet, the script and the icon.
static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    let (css, js) = ("text/css; charset=utf-8", "text/javascript; charset=utf-8");
    [
        Asset::new(
            "console",
            "css",
            css,
            include_bytes!("../assets/console.css"),
        ),
        Asset::new("console", "js", js, include_bytes!("../assets/console.js")),
        Asset::new(
            "icon",
            "svg",
            "image/svg+xml",
            include_bytes!("../assets/icon.svg"),
        ),
    ]
});

/// The paths of style sheet, script and icon.
pub(crate) fn paths() -> [String; 3] {
    ASSETS
        .each_ref()
        .map(|asset| format!("/console/assets/{}", asset.name))
}

/// Serves a file.
pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, asset.content.clone()).into_response()
}
