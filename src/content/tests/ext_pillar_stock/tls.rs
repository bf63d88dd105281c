//! Servers that prove who they are, and one that does not.

use std::fs;

use saltern_stock::tls::Identity;
use saltern_wire::msgpack::Value;

use super::{cases::Case, ours, site};

#[test]
fn server_certificate_is_verified() {
    let site = site();
    let identity = Identity::new();
    fs::write(site.path().join("ca.pem"), identity.certificate_pem()).unwrap();
    let port = identity.serve("a: 1");
    let case = Case {
        ext_pillar: "",
        saltenv: None,
        pillarenv: None,
    };
    for (host, more, is_believed) in [
        ("127.0.0.1", "", false),
        ("127.0.0.1", "ca_bundle: '{top}/ca.pem'", true),
        ("127.0.0.1", "verify_ssl: false", true),
        ("localhost", "ca_bundle: '{top}/ca.pem'", false),
    ] {
        let option = format!("ext_pillar: [{{http_yaml: 'https://{host}:{port}/'}}]\n{more}");
        let (pillar, errors) = ours(site.path(), &case, &option);
        let expected = is_believed.then_some(&Value::Int(1));
        assert_eq!(pillar.get("a"), expected, "{host} {more}");
        assert!(errors.is_empty(), "{errors:?}");
    }
}
