//! `log_*`, `saltern_log_format` and `tracing`: what is read, what is passed over with a warning,
//! and what is refused.

use crate::common::load;
use saltern_base::trace::Sampler;
use saltern_config::{Loaded, LogFormat, LogLevel, Severity};

/// The one warning about an option.
fn warning(loaded: &Loaded) -> &str {
    let is_warning = |finding: &&saltern_config::Finding| finding.severity == Severity::Warning;
    let mut found = loaded.findings.iter().filter(is_warning);
    let first = found.next().unwrap();
    assert!(found.next().is_none(), "{:?}", loaded.findings);
    &first.message
}

#[test]
fn granular_log_levels_apply_to_our_crates_only() {
    let text = "log_level: info\nsaltern_log_format: json\nlog_rotate_max_bytes: 1000\n\
                log_granular_levels: {saltern_actors.bus: debug, salt.loader: trace}\n";
    let loaded = load(text).unwrap();
    let log = &loaded.config.log;
    let levels = &loaded.config.followed().log_levels;
    assert_eq!(
        (levels.level, levels.file_level),
        (LogLevel::Info, LogLevel::Info)
    );
    assert_eq!(log.format, LogFormat::Json);
    assert_eq!((log.rotate_at, log.rotated_files), (1000, 0));
    let expected = [("saltern_actors::bus".to_owned(), LogLevel::Debug)];
    assert_eq!(levels.granular_levels, expected);
    assert!(warning(&loaded).contains("salt.loader"));
    for wrong in ["[a]", "{saltern: loud}", "{1: debug}"] {
        let errors = load(&format!("log_granular_levels: {wrong}\n"));
        let errors = errors.err().unwrap().to_string();
        assert!(errors.contains("log_granular_levels"), "{errors}");
    }
}

#[test]
fn log_to_syslog_is_reported_as_unsupported() {
    let loaded = load("log_file: file:///dev/log\n").unwrap();
    assert_eq!(
        loaded.config.followed().log_levels.file_level,
        LogLevel::Quiet
    );
    assert!(warning(&loaded).contains("syslog"));
}

#[test]
fn tracing_is_read_as_stock_reads_it() {
    assert!(load("").unwrap().config.tracing.is_none());
    let off = "tracing: {endpoint: 'http://c:4318/v1/traces'}\n";
    assert!(load(off).unwrap().config.tracing.is_none());
    let text = "tracing: {enabled: true, sampler: trace_id_ratio, sampler_arg: '0.25', \
                endpoint: 'http://c:1/x', headers: {key: word}, resource_attributes: {zone: 3}}\n";
    let tracing = load(text).unwrap().config.tracing.clone().unwrap();
    assert_eq!(tracing.sampler, Sampler::TraceIdRatio(0.25));
    assert_eq!(tracing.endpoint, "http://c:1/x");
    assert_eq!(tracing.service_name, "salt-master");
    assert_eq!(tracing.headers.first().unwrap().1.expose(), "word");
    let zone = ("zone".to_owned(), "3".to_owned());
    assert_eq!(tracing.resource_attributes, [zone]);
    assert!(tracing.is_exported);
}

#[test]
fn unsupported_tracing_settings_are_reported() {
    let loaded = load("tracing: {enabled: true, exporter: otlp-grpc}\n").unwrap();
    assert!(!loaded.config.tracing.as_ref().unwrap().is_exported);
    assert!(warning(&loaded).contains("otlp-grpc"));
    let loaded = load("tracing: {enabled: true, sampler: mine}\n").unwrap();
    assert!(warning(&loaded).contains("\"mine\""));
    for wrong in ["[1]", "{enabled: true, headers: [a]}"] {
        let errors = load(&format!("tracing: {wrong}\n")).err().unwrap();
        assert!(errors.to_string().contains("tracing"), "{errors}");
    }
}
