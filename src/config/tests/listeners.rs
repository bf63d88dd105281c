//! `transport`, `saltern_also_listen` and `ssl`: what is read, and what is refused with its line.

use crate::common::load;
use saltern_config::{MetricsCompat, PeerCertificates, Severity, TransportName};

#[test]
fn several_transports_listen_at_the_same_time() {
    let text = "transport: tcp\nsaltern_also_listen:\n  - {transport: zeromq, ret_port: 5506, \
                publish_port: 5505}\n  - {transport: ws, ret_port: 6506, publish_port: 6505}\n";
    let config = load(text).unwrap().config;
    assert_eq!(config.transport, TransportName::Tcp);
    let also = config.saltern_also_listen.iter();
    let also: Vec<_> = also
        .map(|door| (door.transport, door.ret_port, door.publish_port))
        .collect();
    let expected = [
        (TransportName::ZeroMq, 5506, 5505),
        (TransportName::Ws, 6506, 6505),
    ];
    assert_eq!(also, expected);
    assert!(load("").unwrap().config.saltern_also_listen.is_empty());
}

#[test]
fn tls_is_read_as_stock_reads_it() {
    let text = "transport: tcp\nssl:\n  certfile: /c.pem\n  keyfile: /k.pem\n  ca_certs: /ca.pem\n  \
                ssl_version: PROTOCOL_TLSv1_2\n  verify_locations: [/a.pem, {cafile: /b.pem}]\n  \
                ciphers: ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256\n";
    let tls = load(text).unwrap().config.ssl.clone().unwrap();
    assert_eq!(tls.certificate.to_str(), Some("/c.pem"));
    assert_eq!(tls.key.to_str(), Some("/k.pem"));
    assert_eq!(tls.authorities.len(), 3);
    assert!(tls.only_tls12);
    assert_eq!(tls.ciphers.unwrap().len(), 2);
    // Without cert_reqs a certificate is required in 3008, and not asked for before.
    assert_eq!(tls.peers, PeerCertificates::Required);
    for (text, peers) in [
        ("salt_compat: 3006\n", PeerCertificates::NotAsked),
        ("salt_compat: 3007\n", PeerCertificates::NotAsked),
    ] {
        let text = format!("{text}transport: tcp\nssl: {{certfile: /c.pem}}\n");
        let tls = load(&text).unwrap().config.ssl.clone().unwrap();
        assert_eq!((tls.peers, tls.key.to_str()), (peers, Some("/c.pem")));
    }
    for off in ["", "ssl: false\n", "ssl:\n"] {
        assert_eq!(load(off).unwrap().config.ssl, None, "{off}");
    }
}

#[test]
fn invalid_listener_is_refused_with_its_line() {
    let also = |item: &str| format!("saltern_also_listen:\n  - {item}\n");
    let tls =
        |entry: &str| format!("transport: tcp\nssl:\n  certfile: /c\n  ca_certs: /a\n  {entry}\n");
    let table = [
        ("saltern_also_listen: tcp\n".to_owned(), 3, "is not a list"),
        (also("tcp"), 4, "text is not a mapping of transport"),
        (
            also("{transport: tcp, ret_port: 1}"),
            4,
            "publish_port is missing",
        ),
        (
            also("{transport: udp, ret_port: 1, publish_port: 2}"),
            4,
            "\"udp\" is not one of zeromq, tcp, ws",
        ),
        (
            also("{transport: tcp, ret_port: 0, publish_port: 2}"),
            4,
            "0 is not a port",
        ),
        (
            also("{transport: tcp, port: 1}"),
            4,
            "\"port\" is not one of transport",
        ),
        (
            also("{transport: tcp, ret_port: 4506, publish_port: 2}"),
            3,
            "the port 4506 is taken already",
        ),
        (
            also("{transport: zeromq, ret_port: 1, publish_port: 2}"),
            3,
            "the transport \"zeromq\" is in use already",
        ),
        (
            "transport: tcp\nssl: true\n".to_owned(),
            4,
            "certfile is missing",
        ),
        (
            "transport: tcp\nssl: 5\n".to_owned(),
            4,
            "neither true or false",
        ),
        (
            "transport: tcp\nssl: {certfile: /c}\n".to_owned(),
            4,
            "ca_certs names no authority",
        ),
        (tls("cert_reqs: CERT_MAYBE"), 7, "is not one of CERT_NONE"),
        (tls("ssl_version: PROTOCOL_TLSv1"), 7, "too old to be safe"),
        (tls("ssl_version: TLS"), 7, "is not one of PROTOCOL_TLS"),
        (
            tls("verify_flags: [VERIFY_X509_STRICT]"),
            7,
            "verify_flags cannot",
        ),
        (
            tls("verify_locations: [{capath: /x}]"),
            7,
            "only be a list of files",
        ),
        (
            tls("server_hostname: x"),
            7,
            "\"server_hostname\" is no option",
        ),
        (tls("keyfile: [x]"), 7, "keyfile is a list, not text"),
    ];
    for (text, line, message) in table {
        let errors = load(&text)
            .err()
            .unwrap_or_else(|| panic!("accepted: {text}"));
        let found: Vec<_> = errors.errors().collect();
        assert_eq!(found.len(), 1, "{text}: {errors}");
        assert!(found[0].message.contains(message), "{text}: {errors}");
        assert_eq!(found[0].line, line, "{text}: {errors}");
    }
}

#[test]
fn tls_on_some_ports_only_is_reported() {
    let text = "ssl: {certfile: /c, cert_reqs: CERT_NONE}\n\
                saltern_also_listen: [{transport: tcp, ret_port: 1, publish_port: 2}]\n";
    let findings = load(text).unwrap().findings;
    let warnings: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning)
        .collect();
    assert_eq!(warnings.len(), 1, "{findings:?}");
    assert!(warnings[0].message.contains("\"zeromq\" has no TLS"));
}

#[test]
fn metrics_have_an_address_and_tls_of_their_own() {
    let config = load("").unwrap().config;
    let address = config.saltern_metrics_address.unwrap().to_string();
    assert_eq!(address, "127.0.0.1:4507");
    assert!(!config.is_written("saltern_metrics_address"));
    let off = load("saltern_metrics_address: ''\n").unwrap().config;
    assert_eq!(off.saltern_metrics_address, None);
    // A scraper needs no certificate unless one is asked for, whatever Salt's line is.
    let text = "saltern_metrics_address: '[::]:9000'\nsaltern_metrics_ssl: {certfile: /c.pem}\n";
    let config = load(text).unwrap().config;
    assert_eq!(config.saltern_metrics_address.unwrap().port(), 9000);
    let tls = config.saltern_metrics_ssl.as_ref().unwrap();
    assert_eq!(tls.peers, PeerCertificates::NotAsked);
    assert_eq!(config.ssl, None);
    for wrong in ["localhost:4507", "127.0.0.1", "4507"] {
        let errors = load(&format!("saltern_metrics_address: '{wrong}'\n"))
            .err()
            .unwrap();
        assert!(errors.to_string().contains(wrong), "{errors}");
    }
    let text = "saltern_metrics_ssl: {keyfile: /k.pem}\n";
    let errors = load(text).err().unwrap().to_string();
    assert!(errors.contains("saltern_metrics_ssl"), "{errors}");
}

#[test]
fn metrics_compat_selects_metric_names() {
    let compat = |text: &str| load(text).map(|loaded| loaded.config.metrics_compat);
    assert_eq!(compat("").unwrap(), MetricsCompat::default());
    let both = compat("metrics_compat: [salt-exporter, opentelemetry]\n").unwrap();
    assert!(both.salt_exporter && both.opentelemetry);
    let one = compat("metrics_compat: salt-exporter\n").unwrap();
    assert!(one.salt_exporter && !one.opentelemetry);
    let errors = compat("metrics_compat: [salt_exporter]\n").err().unwrap();
    assert!(errors.to_string().contains("metrics_compat"), "{errors}");
}
