//! Published faults of stock's salt-api, each as one test that names its CVE, against the API of a
//! whole master. The table is `docs/cve.md`; what concerns the gate behind every door is in
//! `src/requests/tests/wire/cves`.

use std::net::SocketAddr;

use crate::in_system;
use crate::net_api::{FORM, api_of, exchange, log_in, post};
use crate::site::{Running, Site};

/// All clients, a user with few rights, and one with all.
const OPTIONS: &str = "saltern_api: {port: 0}\npython_bridge: false\nsharedsecret: hush\ntimeout: 2\n\
     netapi_enable_clients: [local, local_async, local_batch, local_subset, runner, runner_async, \
     wheel, wheel_async, ssh]\n\
     external_auth: {sharedsecret: {ann: ['.*', '@runner', '@wheel'], bob: [test.ping]}}\n";

/// A master with its API.
struct Api {
    site: Site,
    running: Running,
    address: SocketAddr,
}

impl Api {
    fn start() -> Self {
        let site = Site::new(OPTIONS);
        let running = site.start();
        let address = api_of(&running);
        Self {
            site,
            running,
            address,
        }
    }

    /// Whether a call without a session is refused, by `/` and by `/run`.
    async fn refuses(&self, call: &str) {
        for page in ["/", "/run"] {
            let (head, body) = exchange(self.address, &format!("POST {page} {FORM}"), call).await;
            let status = head.split(' ').nth(1).unwrap_or_default();
            assert!(
                ["400", "401"].contains(&status),
                "{page} {call}: {head}\n{body}"
            );
        }
    }

    /// Whether a call of a user is refused.
    async fn refuses_user(&self, session: &str, call: &str) {
        let (head, body) = post(self.address, session, call).await;
        let status = head.split(' ').nth(1).unwrap_or_default();
        assert!(
            ["400", "401", "403"].contains(&status),
            "{call}: {head}\n{body}"
        );
    }

    fn pwned(&self) -> std::path::PathBuf {
        self.site.path().join("pwned")
    }
}

/// The ways in which a caller may seem to prove something.
const UNPROVED: [&str; 5] = [
    "",
    "&eauth=sharedsecret",
    "&eauth=sharedsecret&username=ann&password=wrong",
    "&token=0123456789abcdef",
    "&eauth=auto&username=ann&password=x",
];

/// `local_batch` looked at no credentials.
#[test]
fn cve_2017_5192_batch_needs_proof() {
    in_system(async {
        let api = Api::start();
        for proof in UNPROVED {
            api.refuses(&format!("client=local_batch&tgt=*&fun=test.ping{proof}"))
                .await;
        }
        let bob = log_in(api.address, "bob").await;
        api.refuses_user(&bob, "client=local_batch&tgt=*&fun=cmd.run&arg=id")
            .await;
        api.running.master.shutdown().await;
    });
}

/// Some calls were carried out without any credentials.
#[test]
fn cve_2018_15751_every_client_needs_proof() {
    in_system(async {
        let api = Api::start();
        for client in [
            "local",
            "local_async",
            "local_subset",
            "runner",
            "runner_async",
        ] {
            let call = format!("client={client}&tgt=*&fun=cmd.run&arg=id");
            // Log-ins that fail are delayed; one client stands for all.
            let proofs = if client == "local" {
                &UNPROVED[..]
            } else {
                &UNPROVED[..1]
            };
            for proof in proofs {
                api.refuses(&format!("{call}{proof}")).await;
            }
            api.refuses(&format!("{call}&token=0123456789abcdef")).await;
        }
        let proved =
            "client=runner&fun=jobs.list_jobs&eauth=sharedsecret&username=ann&password=hush";
        let (head, _) = exchange(api.address, &format!("POST /run {FORM}"), proved).await;
        assert!(
            head.starts_with("HTTP/1.1 200"),
            "others are served: {head}"
        );
        api.running.master.shutdown().await;
    });
}

/// `wheel_async` ran functions of the master for everybody.
#[test]
fn cve_2021_25281_wheel_async_needs_proof() {
    in_system(async {
        let api = Api::start();
        let keys = api.site.path().join("pki/minions_pre");
        std::fs::create_dir_all(&keys).unwrap();
        std::fs::write(keys.join("m1"), "a key").unwrap();
        api.refuses("client=wheel_async&fun=key.accept&match=m1")
            .await;
        for proof in ["", "&token=0123456789abcdef", "&eauth=sharedsecret"] {
            api.refuses(&format!("client=wheel&fun=key.accept&match=m1{proof}"))
                .await;
            // Begins before the gate is asked, as in stock; nothing comes of it.
            let call = format!("client=wheel_async&fun=key.accept&match=m1{proof}");
            exchange(api.address, &format!("POST /run {FORM}"), &call).await;
        }
        let bob = log_in(api.address, "bob").await;
        api.refuses_user(&bob, "client=wheel&fun=key.accept&match=m1")
            .await;
        let call = "client=wheel_async&fun=key.accept&match=m1";
        post(api.address, &bob, call).await;
        let ann = log_in(api.address, "ann").await;
        let (_, listed) = post(api.address, &ann, "client=wheel&fun=key.list_all").await;
        assert!(listed.contains("\"minions_pre\": [\"m1\"]"), "{listed}");
        assert!(keys.join("m1").exists(), "the key is still pending");
        api.running.master.shutdown().await;
    });
}

/// The client `ssh` looked at no credentials.
#[test]
fn cve_2020_25592_ssh_needs_proof() {
    in_system(async {
        let api = Api::start();
        for proof in UNPROVED {
            let call = format!("client=ssh&tgt=localhost&fun=test.ping{proof}");
            for page in ["/", "/run"] {
                let head = format!("POST {page} {FORM}");
                let (head, body) = exchange(api.address, &head, &call).await;
                // Without a Python of Salt's, as here, the client has no server.
                assert!(!head.starts_with("HTTP/1.1 2"), "{call}: {head}\n{body}");
            }
        }
        api.running.master.shutdown().await;
    });
}

/// Calls with options of the client `ssh` ran commands of the caller on the master.
async fn ssh_option_is_refused(options: &[&str]) {
    let api = Api::start();
    let pwned = api.pwned().display().to_string();
    let ann = log_in(api.address, "ann").await;
    for option in options {
        let option = option.replace("PWNED", &pwned);
        let call = format!("client=ssh&tgt=localhost&fun=test.ping&{option}");
        api.refuses_user(&ann, &call).await;
        api.refuses(&call).await;
        assert!(!api.pwned().exists(), "{option}");
    }
    api.running.master.shutdown().await;
}

/// Options of ssh in the call.
#[test]
fn cve_2017_5200_ssh_takes_no_command_of_the_caller() {
    in_system(ssh_option_is_refused(&[
        "ssh_options=ProxyCommand%3Dtouch+PWNED",
        "raw_shell=True&arg=touch+PWNED",
        "rosters=/etc/salt/roster",
    ]));
}

/// Text of the call in the line of a shell.
#[test]
fn cve_2019_17361_ssh_reaches_no_shell() {
    in_system(ssh_option_is_refused(&[
        "ssh_port=22%3Btouch+PWNED",
        "ssh_user=x%3Btouch+PWNED",
    ]));
}

/// The key and other options of ssh in the line of a shell.
#[test]
fn cve_2020_16846_ssh_key_is_not_of_the_caller() {
    in_system(ssh_option_is_refused(&[
        "ssh_priv=/etc/passwd%7Ctouch+PWNED",
        "ssh_priv=%24%28touch+PWNED%29",
        "ssh_options=-o+ProxyCommand%3Dtouch+PWNED",
    ]));
}

/// The name of a file of keys, which a shell read.
#[test]
fn cve_2021_3148_ssh_reads_no_file_of_the_caller() {
    in_system(ssh_option_is_refused(&[
        "roster_file=/tmp/x%3Btouch+PWNED",
        "ssh_log_file=PWNED",
        "tgt=x&ssh_remote_port_forwards=1%3Btouch+PWNED",
    ]));
}

/// `ProxyCommand` among the options of the call.
#[test]
fn cve_2021_3197_ssh_takes_no_proxy_command() {
    in_system(ssh_option_is_refused(&[
        "ssh_options=ProxyCommand%3Dtouch+PWNED",
        "ssh_identities_only=True&ssh_options=ProxyCommand%3D%3Btouch%09PWNED",
    ]));
}

/// Paths revealed which files the machine has.
#[test]
fn cve_2018_15750_paths_lead_to_no_file() {
    in_system(async {
        let api = Api::start();
        std::fs::write(api.site.path().join("secret"), "the master's own").unwrap();
        let ann = log_in(api.address, "ann").await;
        let mut answers = Vec::new();
        for there in ["secret", "absent"] {
            for way in [
                "/static/../../",
                "/../../",
                "/%2e%2e/%2e%2e/",
                "/jobs/..%2f..%2f",
            ] {
                let head = format!(
                    "GET {way}{there} HTTP/1.1\r\nX-Auth-Token: {ann}\r\nAccept: application/json"
                );
                let (head, body) = exchange(api.address, &head, "").await;
                assert!(!body.contains("the master's own"), "{way}{there}");
                let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
                answers.push((way, status));
            }
        }
        let (there, absent) = answers.split_at(answers.len() / 2);
        assert_eq!(there, absent, "an answer tells the one from the other");
        api.running.master.shutdown().await;
    });
}
