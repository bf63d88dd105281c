//! From a command line to the job that the master is sent.

use std::time::Duration;

use saltern_client::PublishRequest;
use saltern_config::MasterConfig;
use saltern_requests::{typed_argument, typed_arguments};
use saltern_wire::msgpack::Value;

use crate::options::{Call, SaltCommand, SaltOptions};
use crate::target::{TargetError, target};

/// The function of `-d`.
pub(super) const DOCUMENTATION: &str = "sys.doc";

/// The job of a command line.
///
/// # Errors
/// A nodegroup that is not there, or that cannot be written out.
pub(super) fn request(
    command: &SaltCommand,
    config: &MasterConfig,
) -> Result<PublishRequest, TargetError> {
    let directory = command.options.config.directory();
    let (tgt, tgt_type) = target(&command.target, command.target_type, &directory, config)?;
    let verbatim: Vec<&str> = command.no_parse.iter().map(String::as_str).collect();
    let typed = |words: &[String]| {
        let words = words.iter().map(|word| Value::from(word.as_str()));
        typed_arguments(words, &verbatim)
    };
    let (fun, arg) = match &command.call {
        Call::One(function, words) => (Value::from(function.as_str()), typed(words)),
        Call::Several(functions, lists) => {
            let functions = functions.iter().map(|name| Value::from(name.as_str()));
            let lists = lists.iter().map(|words| Value::Array(typed(words)));
            (Value::Array(functions.collect()), lists.collect())
        }
        Call::ConfigDump(_) => (Value::Nil, Vec::new()),
    };
    let options = &command.options;
    let mut request = PublishRequest::new(tgt, tgt_type, "", arg);
    request.fun = fun;
    request.ret = returners(options, config);
    request.kwargs = settings(options);
    request.timeout = seconds(options.timeout);
    Ok(request)
}

/// A time of the command line; none where it says nothing, or no time.
pub(super) fn seconds(option: Option<i64>) -> Option<Duration> {
    let seconds = option.and_then(|seconds| u64::try_from(seconds).ok());
    seconds
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

/// Settings beside the call, for the master and the minions. Stock sends the first two, too.
fn settings(options: &SaltOptions) -> Vec<(String, Value)> {
    let mut settings = vec![
        (
            "show_timeout".to_owned(),
            Value::from(options.show_timeout != Some(false)),
        ),
        (
            "show_jid".to_owned(),
            Value::from(options.show_jid == Some(true)),
        ),
        (
            "delimiter".to_owned(),
            Value::from(options.target.delimiter.as_deref().unwrap_or(":")),
        ),
    ];
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(config) = given(&options.return_config) {
        settings.push(("ret_config".to_owned(), config.into()));
    }
    for (name, text) in [
        ("ret_kwargs", &options.return_kwargs),
        ("module_executors", &options.module_executors),
        ("executor_opts", &options.executor_opts),
        ("metadata", &options.metadata),
    ] {
        if let Some(text) = given(text) {
            settings.push((name.to_owned(), typed_argument(&text)));
        }
    }
    if options.start_event == Some(true) {
        settings.push(("start_event".to_owned(), true.into()));
    }
    settings
}

/// `--return`, and the job cache that minions write to themselves.
fn returners(options: &SaltOptions, config: &MasterConfig) -> String {
    let given = options.returner.clone().filter(|name| !name.is_empty());
    let cache = config.returners.ext_job_cache.clone();
    let cache = cache.filter(|name| !name.is_empty());
    given.into_iter().chain(cache).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CommandOptions as _;
    use crate::settings;

    /// The job of a command line under a configuration of its own.
    fn made(text: &str, words: &[&str]) -> Result<PublishRequest, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("master"), text).unwrap();
        let directory = folder.path().display().to_string();
        let words = [&["-c", directory.as_str()][..], words].concat();
        let parsed = SaltOptions::grammar().parse(words.iter().copied());
        let command = parsed.and_then(SaltCommand::check);
        let command = command.map_err(|ending| ending.stderr)?;
        let config = settings::load(&command.options.config).map_err(|ending| ending.stderr)?;
        let made = request(&command, &config);
        made.map_err(|error| error.to_string().replace(&directory, "DIR"))
    }

    #[test]
    fn targets_go_out_as_stock_sends_them() {
        let groups = "nodegroups: {pair: 'web1,web2', deep: 'N@pair or db*'}\n";
        for (words, kind, target) in [
            (&["web*"][..], "glob", Value::from("web*")),
            (&["-E", "w.*"], "pcre", "w.*".into()),
            (&["-L", "a, b"], "list", vec!["a".into(), "b".into()].into()),
            (&["-I", "role:web"], "pillar", "role:web".into()),
            (&["-S", "10.0.0.0/8"], "ipcidr", "10.0.0.0/8".into()),
            (&["-R", "%web"], "range", "%web".into()),
            (&["-C", "G@a:b  and  c"], "compound", "G@a:b and c".into()),
            (&["-N", "pair"], "compound", "L@web1,web2".into()),
            (
                &["-C", "N@pair and a"],
                "compound",
                "L@web1,web2 and a".into(),
            ),
        ] {
            let request = made(groups, &[words, &["test.ping"]].concat()).expect("a job");
            assert_eq!(
                (request.tgt_type.as_str(), request.tgt),
                (kind, target),
                "{words:?}"
            );
        }
        let unknown = made(groups, &["-N", "none", "test.ping"]).map(|_| ());
        let sentence = "Node group none unavailable in DIR/master";
        assert_eq!(unknown, Err(sentence.to_owned()));
    }

    #[test]
    fn arguments_and_settings_are_read_as_yaml() {
        let words = [
            "*",
            "test.arg",
            "1",
            "a=[x]",
            "--metadata={k: v}",
            "--return=one",
            "-t",
            "7",
            "--module-executors=[direct_call]",
        ];
        let request = made("ext_job_cache: redis\n", &words).expect("a job");
        let named = Value::map([
            ("__kwarg__", Value::from(true)),
            ("a", vec!["x".into()].into()),
        ]);
        assert_eq!(request.arg, [Value::from(1), named]);
        assert_eq!(request.ret, "one,redis");
        assert_eq!(request.timeout, Some(Duration::from_secs(7)));
        let setting = |name: &str| {
            let found = request.kwargs.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(setting("metadata"), Some(Value::map([("k", "v")])));
        assert_eq!(setting("delimiter"), Some(":".into()));
        assert_eq!(setting("show_jid"), Some(false.into()));
        assert_eq!(setting("start_event"), None);
    }

    #[test]
    fn several_functions_have_a_list_of_arguments_each() {
        let request = made("", &["*", "a.b,c.d", "1", ",", "x=2"]).expect("a job");
        assert_eq!(request.fun, vec!["a.b".into(), "c.d".into()].into());
        let named = Value::map([("__kwarg__", Value::from(true)), ("x", 2.into())]);
        let lists = [vec![Value::from(1)].into(), vec![named].into()];
        assert_eq!(request.arg, lists);
    }
}
