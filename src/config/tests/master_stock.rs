//! Loads the same configurations with stock's `salt.config.master_config` and with ours, and
//! compares every option that is honoured.
//!
//! `salt_compat` follows the version found there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use saltern_config::{MasterConfig, load_master};
use serde_json::{Value, json};

/// Each case is a set of files; `DIR` in a text is the directory they are in.
const CASES: &[&[(&str, &str)]] = &[
    &[("master", "")],
    &[("master", "root_dir: DIR/root\n")],
    &[("master", "root_dir: DIR/root/\nid: 007\nuser: root\n")],
    &[(
        "master",
        "root_dir: DIR/root\nid: m\npki_dir: /elsewhere/pki\ncachedir: c\nsock_dir: s\n",
    )],
    &[(
        "master",
        "root_dir: DIR\npki_dir: DIR/pki\ncachedir: DIR/../c/./d\npidfile: run/p.pid\n",
    )],
    &[(
        "master",
        "id: m\ncachedir: /v\nsock_dir: /var/run/salt/master/far/away\n",
    )],
    &[("master", "cachedir: /v\nsock_dir: /tmp/0123456\n")],
    &[("master", "id: m\nappend_domain: example.com\n")],
    &[("master", "id: m.example.com\nappend_domain: example.com\n")],
    &[("master", "log_dir: /l\n")],
    &[(
        "master",
        "root_dir: DIR/r\nlog_dir: /l\nlog_file: x/y.log\n",
    )],
    &[(
        "master",
        "root_dir: DIR/r\nlog_file: file:///dev/log\nlog_level: debug\n",
    )],
    &[(
        "master",
        "root_dir: DIR/r\nautosign_file: a/sign.conf\nautoreject_file: /etc/rej\n\
                  autosign_grains_dir: /etc/grains\nautosign_timeout: 5\n",
    )],
    &[(
        "master",
        "interface: 127.0.0.1\npublish_port: 1234\nret_port: 1235\nipv6: true\n\
                  tcp_keepalive: no\ntcp_keepalive_idle: 5\ntcp_keepalive_cnt: 3\n\
                  tcp_keepalive_intvl: 7\nzmq_backlog: 77\npub_hwm: 5\nzmq_filtering: on\n\
                  publish_drain_timeout: 1.5\n",
    )],
    &[
        ("master", "interface: '::'\nworker_threads: 0o7\n"),
        ("master.d/a.conf", "worker_threads: 9"),
    ],
    &[(
        "master",
        "keep_jobs: 48\ntimeout: 1:30\ngather_job_timeout: 010\nloop_interval: 7\n",
    )],
    &[(
        "master",
        "keep_jobs: 48\nkeep_jobs_seconds: 100\njob_cache: False\nunique_jid: yes\n",
    )],
    &[(
        "master",
        "keep_jobs: 0\nmax_event_size: 2048\nauth_events: off\n",
    )],
    &[(
        "master",
        "keep_jobs_seconds: 0\nhash_type: SHA512\nkeysize: 4096\nkey_pass: geheim\n",
    )],
    &[(
        "master",
        "auto_accept: True\nopen_mode: False\nmax_minions: 5\nkeysize: 0x1000\n\
                  allow_minion_key_revoke: no\npermissive_pki_access: yes\n",
    )],
    &[(
        "master",
        "master_sign_pubkey: true\nmaster_sign_key_name: sig\nid: m\n\
                  master_use_pubkey_signature: true\nsigning_key_pass: x\n",
    )],
    &[(
        "master",
        "master_pubkey_signature: given\nrotate_aes_key: no\nping_on_rotate: yes\n\
                  sign_pub_messages: false\npublish_session: 100\nrequest_server_ttl: 60\n\
                  publish_signing_algorithm: PKCS1v15-SHA224\nminimum_auth_version: 1\n\
                  require_minion_sign_messages: yes\n\
                  drop_messages_signature_fail: yes\n",
    )],
    // Include files: sorted, hidden ones left out, later ones over earlier ones and over the main.
    &[
        ("master", "id: m\ntimeout: 1\nnodegroups: {a: x, b: y}\n"),
        (
            "master.d/b.conf",
            "timeout: 3\nnodegroups: {c: z}\nfile_ignore_glob: [x, y]\n",
        ),
        (
            "master.d/a.conf",
            "timeout: 2\nret_port: 99\nfile_ignore_glob: [y, z]\n",
        ),
        ("master.d/.hidden.conf", "timeout: 9\n"),
        ("master.d/c.txt", "timeout: 9\n"),
    ],
    &[
        (
            "master",
            "id: m\ninclude:\n  - extra/*.conf\n  - DIR/last\ntimeout: 1\nret_port: 5\n",
        ),
        (
            "master.d/a.conf",
            "timeout: 2\nret_port: 6\nnodegroups: {a: 1}\n",
        ),
        (
            "extra/a.conf",
            "timeout: 3\ninclude: inner/x\nkeep_jobs_seconds: 5\n",
        ),
        (
            "extra/inner/x",
            "keep_jobs_seconds: 6\nnodegroups: {b: {c: 1}}\n",
        ),
        ("extra/b.conf", "nodegroups: {b: {d: 2}}\n"),
        ("last", "publish_port: 44\n"),
    ],
    &[
        ("master", "default_include: other/*.yml\ninclude: none/*\n"),
        ("other/x.yml", "timeout: 8\n"),
        ("master.d/a.conf", "timeout: 2\n"),
    ],
    &[
        ("master", "id: m\n"),
        (
            "master.d/a.conf",
            "id: 5\nschedule: {j: {args: [a], x: 1}}\n",
        ),
        ("master.d/b.conf", "schedule: {j: {args: [b]}, k: {y: 2}}\n"),
    ],
    &[
        (
            "master",
            "id: m\ntimeout: 4\nx: &x {a: 1}\nnodegroups:\n  <<: *x\n  b: 2\n",
        ),
        ("master.d/empty.conf", "# nothing\n"),
    ],
];

/// The options that are compared whole, as they were written or included.
const RAW: &[&str] = &[
    "file_ignore_glob",
    "nodegroups",
    "schedule",
    "file_roots",
    "engines",
];

fn ask_stock(arguments: &[String]) -> String {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/options_master.py");
    let output = Command::new(saltern_stock::python(saltern_stock::NEWEST))
        .arg(script)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn seconds(time: Duration) -> Value {
    json!(time.as_secs_f64())
}

/// Our options under stock's names, as stock would show them.
#[rustfmt::skip]
fn ours(config: &MasterConfig) -> Vec<(&'static str, Value)> {
    let followed = config.followed();
    let path = |path: &Path| json!(path.to_str().unwrap());
    let some_path = |path: &Option<PathBuf>| json!(path.as_deref().map(|p| p.to_str().unwrap()));
    let count = |number: Option<usize>| json!(number.unwrap_or(0));
    let whole = |time: Option<Duration>| time.map_or(json!(-1), |time| json!(time.as_secs()));
    let signed = |number: Option<u32>| number.map_or(json!(-1), |number| json!(number));
    let secret = |secret: Option<&saltern_config::Secret>| json!(secret.map(|s| s.expose()));
    vec![
        ("interface", json!(config.interface.to_string())),
        ("publish_port", json!(config.publish_port)),
        ("ret_port", json!(config.ret_port)),
        ("pub_hwm", json!(config.pub_hwm)),
        ("zmq_filtering", json!(config.zmq_filtering)),
        ("tcp_keepalive", json!(config.tcp_keepalive)),
        ("tcp_keepalive_idle", whole(config.tcp_keepalive_idle)),
        ("tcp_keepalive_cnt", signed(config.tcp_keepalive_cnt)),
        ("tcp_keepalive_intvl", whole(config.tcp_keepalive_intvl)),
        ("publish_drain_timeout", seconds(config.publish_drain_timeout)),
        ("id", json!(config.id)),
        ("user", json!(config.user)),
        ("max_open_files", json!(config.max_open_files)),
        ("loop_interval", seconds(config.loop_interval)),
        ("pki_dir", path(&config.pki_dir)),
        ("cachedir", path(&config.cachedir)),
        ("sock_dir", path(&config.sock_dir)),
        ("pidfile", path(&config.pidfile)),
        ("token_dir", path(&config.token_dir)),
        ("syndic_dir", path(&config.syndic_dir)),
        ("conf_file", path(&config.conf_file)),
        ("log_file", json!(config.log.file)),
        ("log_level", json!(followed.log_levels.level.name())),
        ("log_fmt_console", json!(config.log.console_line)),
        ("log_fmt_logfile", json!(config.log.file_line)),
        ("log_datefmt", json!(config.log.console_date)),
        ("log_datefmt_logfile", json!(config.log.file_date)),
        ("timeout", seconds(config.timeout)),
        ("gather_job_timeout", seconds(config.gather_job_timeout)),
        ("effective_keep_jobs", json!(config.keep_jobs.map_or(0, |t| t.as_secs()))),
        ("job_cache", json!(config.job_cache)),
        ("job_cache_store_endtime", json!(config.job_cache_store_endtime)),
        ("unique_jid", json!(config.unique_jid)),
        ("max_event_size", json!(config.max_event_size)),
        ("auth_events", json!(config.auth_events)),
        ("auto_accept", json!(followed.auto_accept)),
        ("open_mode", json!(config.open_mode)),
        ("autosign_file", some_path(&followed.autosign_file)),
        ("autoreject_file", some_path(&followed.autoreject_file)),
        ("autosign_grains_dir", some_path(&followed.autosign_grains_dir)),
        ("max_minions", count(config.max_minions)),
        ("allow_minion_key_revoke", json!(config.allow_minion_key_revoke)),
        ("permissive_pki_access", json!(followed.permissive_pki_access)),
        ("keysize", json!(config.keysize)),
        ("hash_type", json!(config.hash_type.name())),
        ("key_pass", secret(config.key_pass.as_ref())),
        ("signing_key_pass", secret(config.signing_key_pass.as_ref())),
        ("master_sign_pubkey", json!(config.master_sign_pubkey)),
        ("master_sign_key_name", json!(config.master_sign_key_name)),
        ("master_use_pubkey_signature", json!(config.master_use_pubkey_signature)),
        ("publish_session", seconds(config.publish_session)),
        ("rotate_aes_key", json!(config.rotate_aes_key)),
        ("ping_on_rotate", json!(config.ping_on_rotate)),
        ("sign_pub_messages", json!(config.sign_pub_messages)),
        ("publish_signing_algorithm", json!(config.publish_signing_algorithm.name())),
        ("minimum_auth_version", json!(config.minimum_auth_version)),
        ("request_server_ttl", json!(config.request_server_ttl.map_or(0, |t| t.as_secs()))),
        ("require_minion_sign_messages", json!(config.require_minion_sign_messages)),
        ("drop_messages_signature_fail", json!(config.drop_messages_signature_fail)),
    ]
}

/// Numbers are equal whatever their type, as in Python.
fn same(ours: &Value, stock: &Value) -> bool {
    match (ours.as_f64(), stock.as_f64()) {
        (Some(ours), Some(stock)) => ours == stock,
        _ => ours == stock,
    }
}

#[test]
fn honoured_options_have_the_values_of_stock() {
    let version = ask_stock(&["--version".to_owned()]).trim().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let mut places = Vec::new();
    for (index, files) in CASES.iter().enumerate() {
        let place = dir.path().join(format!("c{index}"));
        for (name, text) in *files {
            let path = place.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut text = text.replace("DIR", place.to_str().unwrap());
            if *name == "master" {
                text.push_str(&format!("salt_compat: {version}\n"));
            }
            fs::write(path, text).unwrap();
        }
        places.push(place.to_str().unwrap().to_owned());
    }
    let answers = ask_stock(&places);
    let rows: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), CASES.len());

    let mut wrong = Vec::new();
    for ((place, row), files) in places.iter().zip(rows).zip(CASES) {
        let loaded = match load_master(Path::new(place)) {
            Ok(loaded) => loaded,
            Err(errors) => {
                wrong.push(format!("{files:?}: refused: {errors}"));
                continue;
            }
        };
        let mut values = ours(&loaded.config);
        for name in RAW {
            let mut shown = loaded.config.shown_values();
            let raw = shown
                .find(|(shown, _)| shown == name)
                .map_or(Value::Null, |(_, node)| as_json(&node.value));
            values.push((name, raw));
        }
        // Where only this program has a default of its own, a written value must be kept.
        for (name, value) in [
            ("zmq_backlog", json!(loaded.config.zmq_backlog)),
            ("worker_threads", json!(loaded.config.worker_threads)),
            ("ipv6", json!(loaded.config.ipv6)),
        ] {
            if loaded.config.is_written(name) {
                values.push((name, value));
            }
        }
        for (name, value) in values {
            let stock = row.get(name).unwrap_or(&Value::Null);
            if !same(&value, stock) {
                wrong.push(format!("{files:?}\n  {name}: ours {value}, stock {stock}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ from Salt {version}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn as_json(value: &saltern_config::yaml::NodeValue) -> Value {
    use saltern_config::yaml::NodeValue;
    match value {
        NodeValue::Null => Value::Null,
        NodeValue::Bool(flag) => json!(flag),
        NodeValue::Int(number) => json!(number),
        NodeValue::Float(number) => json!(number),
        NodeValue::BigInt(text) | NodeValue::Str(text) | NodeValue::Timestamp(text) => json!(text),
        NodeValue::Binary(bytes) => json!(bytes),
        NodeValue::Seq(items) => items.iter().map(|item| as_json(&item.value)).collect(),
        NodeValue::Map(map) => map
            .iter()
            .map(|(key, entry)| (key.to_string(), as_json(&entry.value.value)))
            .collect(),
    }
}
