//! `http_json` and `http_yaml`: what a server answers (`salt/pillar/http_json.py`, `http_yaml.py`).
//!
//! In the URL `%s` stands for the minion's id, and with `with_grains` `<name>` for a grain; both
//! are encoded, slashes too, so that neither can change the host, the path around it or add
//! parameters. As in stock, an answer that
//! is an error gives nothing and is logged, one that cannot be read is an error of the pillar.

use std::path::PathBuf;
use std::time::Duration;

use saltern_base::{chain, percent_encoded};
use saltern_config::yaml::Node;
use saltern_config::{MasterConfig, OptionValue};
use saltern_http::client::{self, Credentials, Request};
use saltern_wire::msgpack::Value;

use super::arguments::{Arguments, wrong};
use super::error::{ArgumentError, SourceError};
use super::{Call, Source, yaml};
use crate::render::data::to_template;
use crate::render::jinja::text_of;
use crate::render::json;
use crate::render::modules::traverse;

/// The parameters of `http_json`.
pub(super) const JSON_PARAMETERS: &[&str] = &[
    "url",
    "with_grains",
    "header_dict",
    "auth",
    "username",
    "password",
    "namespace",
];
/// The parameters of `http_yaml`.
pub(super) const YAML_PARAMETERS: &[&str] = &[
    "url",
    "with_grains",
    "header_dict",
    "auth",
    "username",
    "password",
];

/// The longest time of a request, whatever `http_request_timeout` says: a pillar waits for it.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(60);
/// The largest answer, whatever `http_max_body` says.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Format of a response.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Json,
    Yaml,
}

/// The source.
pub(super) struct Http {
    form: Form,
    url: String,
    with_grains: bool,
    headers: Vec<(String, String)>,
    credentials: Option<Credentials>,
    namespace: Option<String>,
    tls: client::Tls,
    time: Duration,
    connect_time: Duration,
    max_response_bytes: u64,
}

impl Http {
    pub(super) fn new(
        arguments: &Arguments,
        form: Form,
        config: &MasterConfig,
    ) -> Result<Self, ArgumentError> {
        if config.proxy_host() {
            return Err(ArgumentError::Proxy);
        }
        if arguments.is_on("auth") {
            return Err(ArgumentError::Auth);
        }
        let username = arguments.text("username")?.filter(|name| !name.is_empty());
        let password = arguments.text("password")?;
        let credentials = username
            .map(|username| Credentials::new(&username, password.as_deref().unwrap_or_default()));
        Ok(Self {
            form,
            url: arguments.need_text("url")?,
            with_grains: arguments.is_on("with_grains"),
            headers: headers(arguments.get("header_dict"))?,
            credentials,
            namespace: arguments.text("namespace")?.filter(|name| !name.is_empty()),
            tls: client::Tls {
                verify: config.verify_ssl().node().is_none_or(Node::is_truthy),
                ca_bundle: config.ca_bundle().map(PathBuf::from),
            },
            time: seconds(config.http_request_timeout()).unwrap_or(MAX_REQUEST_TIME),
            connect_time: seconds(config.http_connect_timeout()).unwrap_or(MAX_REQUEST_TIME),
            max_response_bytes: config
                .http_max_body()
                .as_i64()
                .and_then(|bytes| u64::try_from(bytes).ok())
                .map_or(MAX_RESPONSE_BYTES, |bytes| bytes.min(MAX_RESPONSE_BYTES)),
        })
    }

    /// The URL for a minion; nothing if a grain is missing.
    fn url_for(&self, call: &Call<'_>) -> Option<String> {
        let url = self.url.replace("%s", &quoted(call.input.minion.as_str()));
        if !self.with_grains {
            return Some(url);
        }
        let mut filled = url.clone();
        let mut rest = url.as_str();
        while let Some((name, after)) = rest
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
        {
            rest = after;
            let value = traverse(call.input.grains, name, ":").filter(|value| value.is_truthy());
            let Some(value) = value.and_then(|value| text_of(&to_template(value)).ok()) else {
                tracing::error!(minion = %call.input.minion, grain = name, "the grain is missing");
                return None;
            };
            filled = filled.replace(&format!("<{name}>"), &quoted(&value));
        }
        if has_dots(&filled) && !has_dots(&self.url) {
            tracing::error!(minion = %call.input.minion, "a grain would change the path of a URL");
            return None;
        }
        Some(filled)
    }
}

fn seconds(option: OptionValue<'_>) -> Option<Duration> {
    let seconds = option.as_f64()?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .map(|time| time.min(MAX_REQUEST_TIME))
}

fn headers(node: Option<&Node>) -> Result<Vec<(String, String)>, ArgumentError> {
    let Some(node) = node else {
        return Ok(Vec::new());
    };
    let map = node
        .as_map()
        .ok_or_else(|| wrong("header_dict", node, "a mapping"))?;
    let headers = map.iter().map(|(name, entry)| {
        let value = match (entry.value.as_str(), entry.value.as_i64()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => return Err(ArgumentError::Header(name.to_string())),
        };
        Ok((name.to_string(), value))
    });
    headers.collect()
}

impl Source for Http {
    fn pillar(&self, call: &Call<'_>) -> Result<Value, SourceError> {
        let nothing = Ok(Value::Map(Vec::new()));
        let Some(url) = self.url_for(call) else {
            return nothing;
        };
        let answer = client::fetch(&Request {
            url: &url,
            headers: &self.headers,
            credentials: self.credentials.as_ref(),
            tls: &self.tls,
            body: None,
            time: call.left_of(self.time),
            connect_time: self.connect_time,
            max_response_bytes: self.max_response_bytes,
        });
        let body = match answer {
            Ok(body) => body,
            Err(error) => {
                let minion = call.input.minion;
                let error = chain(&error);
                tracing::error!(%minion, error, "the server of an ext_pillar gave no pillar");
                return nothing;
            }
        };
        let text = String::from_utf8(body).map_err(|_| SourceError::Encoding)?;
        let data = match self.form {
            Form::Json => json::parse(&text)?,
            Form::Yaml => yaml(&text, "http_yaml")?,
        };
        Ok(match &self.namespace {
            Some(name) => Value::map([(name.as_str(), data)]),
            None => data,
        })
    }
}

/// Whether a part of the path is `.` or `..`, which servers take for another path.
fn has_dots(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split('/').any(|part| matches!(part, "." | ".."))
}

/// Python's `urllib.parse.quote` without its exception for slashes.
fn quoted(text: &str) -> String {
    percent_encoded(text.as_bytes(), "_.-~")
}

#[cfg(test)]
mod tests {
    use super::{has_dots, quoted};

    #[test]
    fn minion_id_stays_one_segment_of_the_url() {
        assert_eq!(quoted("web1.example.com"), "web1.example.com");
        assert_eq!(quoted("../../admin"), "..%2F..%2Fadmin");
        for url in ["http://a/../b", "http://a/b/..", "http://a/./b?x"] {
            assert!(has_dots(url), "{url}");
        }
        for url in ["http://a/b..c/.d", "http://a/b?../x", "http://a/..%2F"] {
            assert!(!has_dots(url), "{url}");
        }
        assert_eq!(
            quoted("a b&c=d?e#f@g:é"),
            "a%20b%26c%3Dd%3Fe%23f%40g%3A%C3%A9"
        );
    }
}
