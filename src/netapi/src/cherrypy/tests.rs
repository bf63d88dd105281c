use super::handlers::archive;
use super::*;

#[test]
fn archive_is_one_that_tar_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.tar");
    let files = [
        ("minion.pub", "public\n".to_owned()),
        ("minion.pem", "x".repeat(600)),
    ];
    let archive = archive(&files);
    assert_eq!(archive.len() % 10_240, 0);
    std::fs::write(&path, archive).unwrap();
    let extracted = std::process::Command::new("tar")
        .args([
            "-xf".as_ref(),
            path.as_os_str(),
            "-C".as_ref(),
            dir.path().as_os_str(),
        ])
        .status()
        .unwrap();
    assert!(extracted.success());
    for (name, text) in files {
        assert_eq!(
            std::fs::read_to_string(dir.path().join(name)).unwrap(),
            text
        );
    }
}

#[test]
fn requests_of_another_origin_need_the_header() {
    let headers = |pairs: &[(&'static str, &'static str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                let name = header::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect::<HeaderMap>()
    };
    let cookie = ("cookie", "a=b; session_id=0");
    let host = ("host", "salt:8000");
    let foreign = [cookie, host, ("origin", "https://evil.example")];
    let own = [cookie, host, ("origin", "https://salt:8000")];
    let with_header = [
        cookie,
        host,
        ("origin", "https://evil.example"),
        ("x-auth-token", "0"),
    ];
    let allowed = [cookie, host, ("origin", "https://ok.example")];
    let fetched = [cookie, host, ("sec-fetch-site", "cross-site")];
    let same_site = [cookie, host, ("sec-fetch-site", "same-origin")];
    let fetched_with_header = [
        cookie,
        host,
        ("sec-fetch-site", "cross-site"),
        ("x-auth-token", "0"),
    ];
    let fetched_from_allowed = [
        cookie,
        host,
        ("origin", "https://ok.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    for (pairs, is_refused) in [
        (&foreign[..], true),
        (&fetched[..], true),
        (&same_site[..], false),
        (&fetched_with_header[..], false),
        (&fetched_from_allowed[..], false),
        (&own[..], false),
        (&with_header[..], false),
        (&allowed[..], false),
        (&[cookie, host][..], false),
    ] {
        assert_eq!(
            is_foreign(&headers(pairs), &server()),
            is_refused,
            "{pairs:?}"
        );
    }
}

fn server() -> ApiServer {
    let dir = tempfile::tempdir().unwrap();
    let text = "root_dir: /nowhere\nid: m\nsaltern_api: {cors_origin: 'https://ok.example', \
                api_acl: {users: {ann: [192.0.2.1], '*': ['*']}}}\n";
    std::fs::write(dir.path().join("master"), text).unwrap();
    let loaded = saltern_config::load_master(dir.path()).map_err(|errors| errors.to_string());
    loaded.unwrap().config.net_api.servers.remove(0)
}

#[test]
fn api_acl_names_the_addresses_of_a_user() {
    let server = server();
    let from = |ip: [u8; 4]| std::net::SocketAddr::from((ip, 1));
    assert!(may_use_api(&server, "ann", from([192, 0, 2, 1])));
    assert!(!may_use_api(&server, "ann", from([192, 0, 2, 2])));
    assert!(may_use_api(&server, "bob", from([192, 0, 2, 2])));
}
