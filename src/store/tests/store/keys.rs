//! The master's own keys, session keys, the shared key, user keys and the dropfile.
//!
//! Longer than 500 lines because it is a list: one test a promise.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{KEYS, admit, id, mode, place, text, tree};
use saltern_base::clock::Clock;
use saltern_crypto::{KeyString, PrivateKey, PublicKey, SecretString, SigAlgo};
use saltern_model::Compat;
use saltern_store::shared_state::create_secret;
use saltern_store::{
    Dropfile, KeyProof, MasterKeys, Sessions, SharedKeys, StoreError, StoreOptions, UserKeys,
    dropfile,
};

mod master {
    use super::*;

    fn key_pem(index: usize, passphrase: Option<&str>) -> SecretString {
        KEYS[index].to_pem(passphrase).expect("pem")
    }

    #[test]
    fn new_keys_have_each_versions_names_and_modes() {
        for compat in Compat::ALL {
            let (_dir, options) = place(compat);
            let keys = MasterKeys::with_options(&options).expect("keys");
            let pki = &options.pki_dir;
            if compat == Compat::V3008 {
                let names = ["host.pem", "host.pub", "master.pem", "master.pub"];
                assert_eq!(tree(pki), names);
                assert_eq!(
                    fs::read_link(pki.join("master.pem")).expect("link"),
                    pki.join("host.pem")
                );
                assert_eq!(mode(&pki.join("host.pem")), 0o400);
                assert_eq!(mode(&pki.join("host.pub")), 0o400);
            } else {
                assert_eq!(tree(pki), ["master.pem", "master.pub"]);
                assert_eq!(mode(&pki.join("master.pem")), 0o400);
                // The rest is the umask's business.
                assert_eq!(mode(&pki.join("master.pub")) & 0o700, 0o600);
            }
            assert!(text(pki.join("master.pem")).starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
            assert_eq!(
                text(pki.join("master.pub")),
                format!("{}\n", keys.public_pem)
            );
            let again = MasterKeys::with_options(&options).expect("keys");
            assert_eq!(again.public_pem, keys.public_pem);
        }
    }

    #[test]
    fn keys_of_every_version_are_found_by_every_version_and_left_alone() {
        for compat in Compat::ALL {
            for name in ["master", "host"] {
                let (_dir, options) = place(compat);
                fs::create_dir_all(&options.pki_dir).expect("pki_dir");
                let path = options.pki_dir.join(format!("{name}.pem"));
                fs::write(&path, key_pem(0, None).expose()).expect("a key");
                let keys = MasterKeys::with_options(&options).expect("keys");
                assert_eq!(keys.public_pem, KEYS[0].public().pem());
                // Only the missing public half was added.
                let (private, public) = (format!("{name}.pem"), format!("{name}.pub"));
                assert_eq!(tree(&options.pki_dir), [private, public]);
                assert_eq!(text(&path), key_pem(0, None).expose());
            }
        }
    }

    #[test]
    fn a_passphrase_is_needed_and_must_be_right() {
        let (_dir, mut options) = place(Compat::V3008);
        fs::create_dir_all(&options.pki_dir).expect("pki_dir");
        let path = options.pki_dir.join("master.pem");
        fs::write(&path, key_pem(0, Some("secret")).expose()).expect("a key");
        let passphrase = |text: &str| Some(Arc::new(SecretString::new(text.to_owned())));
        for wrong in [None, passphrase("other")] {
            options.key_pass = wrong;
            let error = MasterKeys::with_options(&options).err().expect("refused");
            assert!(matches!(error, StoreError::Key { .. }), "{error}");
            assert!(error.to_string().contains("master.pem"), "{error}");
        }
        options.key_pass = passphrase("secret");
        assert!(MasterKeys::with_options(&options).is_ok());
        options.key_pass = passphrase("sdb://vault/key");
        let error = MasterKeys::with_options(&options).err().expect("refused");
        assert!(
            matches!(
                error,
                StoreError::Option {
                    option: "key_pass",
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_new_key_is_encrypted_when_there_is_a_passphrase() {
        let (_dir, mut options) = place(Compat::V3006);
        options.key_pass = Some(Arc::new(SecretString::new("secret".to_owned())));
        let keys = MasterKeys::with_options(&options).expect("keys");
        assert!(text(options.pki_dir.join("master.pem")).contains("ENCRYPTED"));
        assert_eq!(
            MasterKeys::with_options(&options).expect("keys").public_pem,
            keys.public_pem
        );
    }

    #[test]
    fn replaced_key_is_noticed() {
        let (_dir, options) = place(Compat::V3008);
        let path = options.pki_dir.join("master.pem");
        fs::create_dir_all(&options.pki_dir).expect("a directory");
        fs::write(&path, key_pem(0, None).expose()).expect("written");
        let keys = MasterKeys::with_options(&options).expect("keys");
        keys.compare_with(&options).expect("the same key");
        fs::write(&path, key_pem(1, None).expose()).expect("replaced");
        let error = keys.compare_with(&options).expect_err("another key");
        assert!(error.to_string().contains("master.pem"), "{error}");
        assert!(matches!(error, StoreError::Replaced { .. }));
        fs::remove_file(&path).expect("removed");
        let error = keys.compare_with(&options).expect_err("no key");
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    }

    #[test]
    fn invalid_key_is_refused_with_its_path() {
        let (_dir, options) = place(Compat::V3006);
        fs::create_dir_all(&options.pki_dir).expect("pki_dir");
        fs::write(options.pki_dir.join("master.pem"), "nonsense").expect("a file");
        let error = MasterKeys::with_options(&options).err().expect("refused");
        assert!(error.to_string().contains("master.pem"), "{error}");
    }

    #[test]
    fn public_key_is_signed_with_the_signing_key() {
        let (_dir, mut options) = place(Compat::V3008);
        options.master_sign_pubkey = true;
        let keys = MasterKeys::with_options(&options).expect("keys");
        let signature = |algo| {
            keys.public_signature(algo, &keys.public_pem)
                .expect("signed")
                .expect("on")
        };
        let public =
            PublicKey::from_pem(text(options.pki_dir.join("master_sign.pub"))).expect("key");
        for algo in [SigAlgo::Pkcs1v15Sha1, SigAlgo::Pkcs1v15Sha224] {
            use base64::Engine as _;
            let text = signature(algo);
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text.strip_suffix('\n').expect("a line feed"))
                .expect("base64");
            assert!(public.verify(algo, keys.public_pem.as_bytes(), &bytes));
        }
    }

    #[test]
    fn precomputed_signature_is_sent_unchanged_and_required() {
        let (_dir, mut options) = place(Compat::V3006);
        options.master_sign_pubkey = true;
        options.master_use_pubkey_signature = true;
        let error = MasterKeys::with_options(&options).err().expect("refused");
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
        fs::write(options.pki_dir.join("master_pubkey_signature"), "c2ln\n").expect("a file");
        let keys = MasterKeys::with_options(&options).expect("keys");
        let signature = keys
            .public_signature(SigAlgo::Pkcs1v15Sha1, &keys.public_pem)
            .expect("read");
        assert_eq!(signature.as_deref(), Some("c2ln"));
    }

    #[test]
    fn precomputed_signature_without_sha224_is_refused_under_fips_mode() {
        use base64::Engine as _;
        let (_dir, mut options) = place(Compat::V3006);
        options.master_sign_pubkey = true;
        options.master_use_pubkey_signature = true;
        fs::create_dir_all(&options.pki_dir).expect("pki_dir");
        let [signer, master] = [&KEYS[1], &KEYS[0]];
        fs::write(
            options.pki_dir.join("master.pem"),
            key_pem(0, None).expose(),
        )
        .expect("written");
        let signer_path = options.pki_dir.join("master_sign.pub");
        fs::write(&signer_path, signer.public().pem()).expect("written");
        let path = options.pki_dir.join("master_pubkey_signature");
        let signed_by = |key: &PrivateKey, algo| {
            let signed = master.public().pem().as_bytes();
            let signature = key.sign(algo, signed).expect("signed");
            base64::engine::general_purpose::STANDARD.encode(signature)
        };
        let made = |algo| signed_by(signer, algo);
        let mut is_taken = |fips_mode, text: String| {
            fs::write(&path, format!("{text}\n")).expect("written");
            options.fips_mode = fips_mode;
            match MasterKeys::with_options(&options) {
                Ok(_) => true,
                Err(error) => {
                    assert!(error.to_string().contains("SHA-1"), "{error}");
                    false
                }
            }
        };
        assert!(is_taken(true, made(SigAlgo::Pkcs1v15Sha224)));
        assert!(!is_taken(true, made(SigAlgo::Pkcs1v15Sha1)));
        let of_another = signed_by(master, SigAlgo::Pkcs1v15Sha224);
        assert!(!is_taken(true, of_another), "by another key");
        assert!(!is_taken(true, "c2ln".to_owned()), "no signature");
        assert!(is_taken(false, made(SigAlgo::Pkcs1v15Sha1)));
        fs::remove_file(&signer_path).expect("removed");
        assert!(
            is_taken(true, made(SigAlgo::Pkcs1v15Sha1)),
            "nobody can tell"
        );
    }
}

mod sessions {
    use super::*;

    #[test]
    fn a_session_survives_a_restart_and_is_private() {
        let (_dir, options) = place(Compat::V3008);
        let open = || Sessions::with_options(&options, Clock::system()).expect("sessions");
        let first = open();
        assert!(first.get(&id("m1")).expect("read").is_none());
        let session = admit(&first, &options, &id("m1"));
        let path = options.cachedir.join("sessions/m1");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(text(&path), session.key.as_str());
        assert!(Arc::ptr_eq(&session, &admit(&first, &options, &id("m1"))));
        let after = open().get(&id("m1")).expect("read").expect("a session");
        assert!(after.key.same_as(&session.key));
    }

    #[test]
    fn session_lookup_writes_nothing() {
        let (dir, options) = place(Compat::V3008);
        let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
        let before = tree(dir.path());
        assert!(sessions.get(&id("stranger")).expect("read").is_none());
        assert_eq!(tree(dir.path()), before);
        assert_eq!(sessions.remembered(), 0);
    }

    /// As on a file server: what is written now has a time of days ago.
    #[test]
    fn session_lifetime_is_independent_of_the_disk_clock() {
        let (_dir, options) = place(Compat::V3008);
        let clock = Clock::manual(Clock::system().now() + 3 * options.publish_session);
        let sessions = Sessions::with_options(&options, clock.clone()).expect("sessions");
        let made = admit(&sessions, &options, &id("m1"));
        let found = sessions
            .get(&id("m1"))
            .expect("read")
            .expect("it is current");
        assert!(found.key.same_as(&made.key));
        assert!(admit(&sessions, &options, &id("m1")).key.same_as(&made.key));
        clock.advance(options.publish_session + Duration::from_secs(600));
        assert!(sessions.get(&id("m1")).expect("read").is_none());
    }

    #[test]
    fn a_session_ends_after_publish_session() {
        let (_dir, options) = place(Compat::V3008);
        let clock = Clock::manual(Clock::system().now());
        let sessions = Sessions::with_options(&options, clock.clone()).expect("sessions");
        let old = admit(&sessions, &options, &id("m1"));
        clock.advance(options.publish_session + Duration::from_secs(600));
        assert!(sessions.get(&id("m1")).expect("read").is_none());
        let new = admit(&sessions, &options, &id("m1"));
        assert!(!new.key.same_as(&old.key));
    }

    /// Otherwise all minions that came at once would authenticate at once a day later.
    #[test]
    fn sessions_of_one_minute_end_over_hours() {
        let (_dir, options) = place(Compat::V3008);
        let clock = Clock::manual(Clock::system().now());
        let sessions = Sessions::with_options(&options, clock.clone()).expect("sessions");
        let minions: Vec<_> = (0..64).map(|number| id(&format!("m{number}"))).collect();
        for minion in &minions {
            admit(&sessions, &options, minion);
        }
        let mut alive = Vec::new();
        clock.advance(options.publish_session * 7 / 8 - Duration::from_secs(60));
        for _ in 0..=8 {
            let is_alive = |minion: &&_| sessions.get(minion).expect("read").is_some();
            alive.push(minions.iter().filter(is_alive).count());
            clock.advance(options.publish_session / 64);
        }
        assert_eq!((alive[0], alive[8]), (64, 0), "{alive:?}");
        let ended = alive.windows(2).map(|two| two[0] - two[1]);
        assert!(ended.clone().all(|ended| ended < 20), "{alive:?}");
    }

    /// The minion that had the name before knows the session, and could read and forge with it.
    #[test]
    fn the_owner_of_another_key_gets_another_session() {
        let (_dir, options) = place(Compat::V3008);
        let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
        let old = admit(&sessions, &options, &id("m1"));
        let file = fs::File::options()
            .write(true)
            .open(options.cachedir.join("sessions/m1"));
        let before = Clock::system().now() - Duration::from_secs(10);
        file.expect("a file").set_modified(before).expect("aged");
        let kept = sessions.get(&id("m1")).expect("read").expect("a session");
        assert!(kept.key.same_as(&old.key), "only who signs in gets another");
        let new = admit(&sessions, &options, &id("m1"));
        assert!(!new.key.same_as(&old.key));
        assert!(Arc::ptr_eq(&new, &admit(&sessions, &options, &id("m1"))));
    }

    #[test]
    fn sessions_without_a_minion_are_removed() {
        let (_dir, options) = place(Compat::V3008);
        let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
        for minion in ["m1", "m2", "m3"] {
            admit(&sessions, &options, &id(minion));
        }
        let removed = sessions.remove_all_but(|minion| minion.as_str() == "m2");
        assert_eq!(removed.expect("removed"), 2);
        assert_eq!(tree(&options.cachedir.join("sessions")), ["m2"]);
        assert_eq!(sessions.remembered(), 1);
    }

    #[test]
    fn a_file_changed_or_removed_by_another_counts_at_once() {
        let (_dir, options) = place(Compat::V3008);
        let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
        admit(&sessions, &options, &id("m1"));
        let path = options.cachedir.join("sessions/m1");
        let other = KeyString::generate();
        fs::write(&path, other.as_str()).expect("written in place");
        let seen = sessions.get(&id("m1")).expect("read").expect("a session");
        assert!(seen.key.same_as(&other));
        for damage in [&b"damaged"[..], b"\xff\xfe\x00", &[b'x'; 2000]] {
            fs::write(&path, damage).expect("written in place");
            assert!(sessions.get(&id("m1")).expect("read").is_none());
            let new = admit(&sessions, &options, &id("m1"));
            assert_eq!(text(&path), new.key.as_str(), "it is replaced");
        }
        fs::remove_file(&path).expect("removed");
        assert!(sessions.get(&id("m1")).expect("read").is_none());
        admit(&sessions, &options, &id("m1"));
        assert!(sessions.remove(&id("m1")).expect("removed"));
        assert!(!path.exists());
    }

    #[test]
    fn workers_that_admit_one_minion_at_once_agree_on_its_key() {
        let (_dir, options) = place(Compat::V3008);
        let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
        let begin = std::sync::Barrier::new(4);
        for round in 0..200 {
            let minion = id(&format!("m{round}"));
            let admit = || {
                begin.wait();
                admit(&sessions, &options, &minion)
            };
            let keys: Vec<_> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4).map(|_| scope.spawn(admit)).collect();
                let joined = workers.into_iter().map(|worker| worker.join());
                joined.map(|session| session.expect("no panic")).collect()
            });
            let on_disk = text(options.cachedir.join(format!("sessions/m{round}")));
            assert!(keys.iter().all(|session| session.key.as_str() == on_disk));
        }
    }

    /// Otherwise a request that one worker has carried out would be new to the other.
    #[test]
    fn workers_that_meet_one_session_at_once_share_its_window() {
        let (_dir, options) = place(Compat::V3008);
        let open = || Sessions::with_options(&options, Clock::system()).expect("sessions");
        let (before, sessions) = (open(), open());
        let begin = std::sync::Barrier::new(4);
        for round in 0..200 {
            let minion = id(&format!("m{round}"));
            admit(&before, &options, &minion);
            let meet = || {
                begin.wait();
                sessions.get(&minion).expect("read").expect("a session")
            };
            let met: Vec<_> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4).map(|_| scope.spawn(meet)).collect();
                let joined = workers.into_iter().map(|worker| worker.join());
                joined.map(|session| session.expect("no panic")).collect()
            });
            assert!(met.iter().all(|session| Arc::ptr_eq(session, &met[0])));
        }
    }
}

mod shared {
    use super::*;

    #[test]
    fn shared_key_and_serials_survive_a_restart() {
        let (_dir, options) = place(Compat::V3008);
        let open = || SharedKeys::with_options(&options, Clock::system()).expect("a key");
        let first = open();
        assert_eq!(first.next().expect("a number").1, 1);
        let mut last = 1;
        for _ in 0..3_000 {
            let next = first.next().expect("a number").1;
            assert_eq!(next, last + 1);
            last = next;
        }
        let key = first.current();
        let second = open();
        assert!(second.current().key.same_as(&key.key));
        assert!(second.next().expect("a number").1 > last);
        assert_eq!(mode(&options.cachedir.join("saltern/shared_key")), 0o600);
    }

    #[test]
    fn rotation_resets_serials_and_survives_restart() {
        let (_dir, options) = place(Compat::V3008);
        let shared = SharedKeys::with_options(&options, Clock::system()).expect("a key");
        let old = shared.current();
        shared.next().expect("a number");
        let new = shared.rotate().expect("rotated");
        assert!(!new.key.same_as(&old.key));
        let (key, serial) = shared.next().expect("a number");
        assert!(key.key.same_as(&new.key));
        assert_eq!(serial, 1);
        let again = SharedKeys::with_options(&options, Clock::system()).expect("a key");
        assert!(again.current().key.same_as(&new.key));
    }

    #[test]
    fn previous_key_is_kept_for_the_overlap_over_restarts() {
        let (_dir, mut options) = place(Compat::V3008);
        let clock = Clock::manual(Clock::system().now());
        let open = |options: &_| SharedKeys::with_options(options, clock.clone()).expect("a key");
        let shared = open(&options);
        assert!(shared.previous().is_none());
        let first = shared.current();
        shared.rotate().expect("rotated");
        let second = shared.current();
        clock.advance(Duration::from_secs(299));
        let shared = open(&options);
        assert!(shared.previous().expect("kept").key.same_as(&first.key));
        clock.advance(Duration::from_secs(1));
        assert!(shared.previous().is_none(), "its time is over");
        shared.rotate().expect("rotated");
        // A block of numbers later the file has been written again.
        for _ in 0..1_100 {
            shared.next().expect("a number");
        }
        let shared = open(&options);
        assert!(shared.previous().expect("kept").key.same_as(&second.key));
        clock.set(clock.now() - Duration::from_secs(3_600));
        assert!(
            shared.previous().is_none(),
            "a clock that is set back does not prolong it"
        );
        options.key_overlap = Duration::ZERO;
        let shared = open(&options);
        shared.rotate().expect("rotated");
        assert!(shared.previous().is_none());
    }

    #[test]
    fn the_signature_is_over_the_digest_of_the_key() {
        let (_dir, options) = place(Compat::V3008);
        let shared = SharedKeys::with_options(&options, Clock::system()).expect("a key");
        let key = shared.current();
        let signature = key.signature(&KEYS[0]).expect("signed");
        let opened = KEYS[0].public().x931_recover(&signature).expect("opened");
        assert_eq!(opened, key.key.digest_hex().as_bytes());
        let kept = key.signature(&KEYS[0]).expect("kept");
        assert!(std::sync::Arc::ptr_eq(&signature, &kept));
    }

    #[test]
    fn a_damaged_file_gives_a_new_key() {
        let (_dir, options) = place(Compat::V3008);
        SharedKeys::with_options(&options, Clock::system()).expect("a key");
        let path = options.cachedir.join("saltern/shared_key");
        for damage in [
            &b"saltern shared key 1\nkey short\n"[..],
            b"\xff\xfe",
            &[b'x'; 5000],
        ] {
            fs::write(&path, damage).expect("damaged");
            let shared = SharedKeys::with_options(&options, Clock::system()).expect("a key");
            assert!(text(&path).contains(shared.current().key.as_str()));
        }
    }
}

mod users {
    use super::*;

    fn account() -> String {
        let passwd = text("/etc/passwd");
        let mut names = passwd.lines().filter_map(|line| line.split(':').next());
        let name = names.find(|name| !matches!(*name, "root" | "salt"));
        name.expect("a second account").to_owned()
    }

    #[test]
    fn only_3006_makes_new_keys_at_every_start_and_not_beside_a_syndic() {
        for (compat, has_syndic) in Compat::ALL
            .into_iter()
            .flat_map(|c| [(c, false), (c, true)])
        {
            let (_dir, mut options) = place(compat);
            options.has_syndic = has_syndic;
            let path = options.cachedir.join(".root_key");
            UserKeys::with_options(&options).expect("keys");
            let first = text(&path);
            assert_eq!(first.len(), 76);
            assert_eq!(mode(&path), 0o600);
            UserKeys::with_options(&options).expect("keys");
            let is_new = compat == Compat::V3006 && !has_syndic;
            assert_eq!(text(&path) != first, is_new, "{compat} {has_syndic}");
        }
    }

    /// Members that relay to each other verify each other's users.
    #[test]
    fn members_of_a_cluster_have_the_same_keys_at_every_start() {
        let (secrets, _) = place(Compat::V3008);
        let secret = secrets.path().join("secret");
        assert!(create_secret(&secret, None).expect("a secret"));
        let at = |compat| {
            let (dir, mut options) = place(compat);
            options.shared_users = Some((secret.clone(), "saltern".to_owned()));
            (dir, options)
        };
        let ((_one, one), (_other, other)) = (at(Compat::V3006), at(Compat::V3008));
        // As before it relayed.
        let alone = StoreOptions {
            shared_users: None,
            ..other.clone()
        };
        UserKeys::with_options(&alone).expect("keys");
        let path = |options: &StoreOptions| options.cachedir.join(".root_key");
        let before = text(path(&other));
        for _ in 0..2 {
            let [one, other] = [&one, &other].map(|options| {
                let keys = UserKeys::with_options(options).expect("keys");
                let key = keys.key("root").expect("a key").expose().to_owned();
                assert_eq!(
                    (text(path(options)), mode(&path(options))),
                    (key.clone(), 0o600)
                );
                key
            });
            assert_eq!(one, other);
            assert_ne!(one, before);
        }
        let elsewhere = StoreOptions {
            shared_users: Some((secret.clone(), "other".to_owned())),
            ..one.clone()
        };
        let shared = text(path(&one));
        UserKeys::with_options(&elsewhere).expect("keys");
        assert_ne!(text(path(&one)), shared);
        fs::remove_file(&secret).expect("removed");
        assert!(UserKeys::with_options(&other).is_err());
    }

    #[test]
    fn damaged_key_is_replaced() {
        let (_dir, options) = place(Compat::V3008);
        let path = options.cachedir.join(".root_key");
        for damage in [&b"\xff\xfe\x00"[..], b"", &[b'x'; 5000], b"two\nlines"] {
            fs::create_dir_all(&options.cachedir).expect("a directory");
            fs::write(&path, damage).expect("damaged");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("private");
            let keys = UserKeys::with_options(&options).expect("keys");
            let key = keys.key("root").expect("a key").expose().to_owned();
            assert_eq!(text(&path), key, "{damage:?}");
            assert!(keys.verify("root", &key) && key.lines().count() == 1);
        }
    }

    #[test]
    fn a_key_that_others_could_read_is_replaced() {
        let (_dir, options) = place(Compat::V3008);
        UserKeys::with_options(&options).expect("keys");
        let path = options.cachedir.join(".root_key");
        let first = text(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
        UserKeys::with_options(&options).expect("keys");
        assert_ne!(text(&path), first);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn users_of_the_acl_get_keys_and_names_that_are_none_do_not() {
        let (_dir, mut options) = place(Compat::V3008);
        let user = account();
        let pattern = format!("{}*", &user[..user.len() - 1]);
        options.acl_users = vec![
            pattern,
            "no-such-user".to_owned(),
            "../../escape".to_owned(),
        ];
        let keys = UserKeys::with_options(&options).expect("keys");
        let users: Vec<&str> = keys.users().collect();
        assert!(users.contains(&user.as_str()), "{users:?}");
        assert!(users.contains(&"root"));
        assert!(
            !users
                .iter()
                .any(|name| name.contains("no-such") || name.contains(".."))
        );
        assert_eq!(mode(&options.cachedir) & 0o001, 0o001);
    }

    #[test]
    fn acl_users_key_proves_only_its_user() {
        let (_dir, mut options) = place(Compat::V3008);
        let user = account();
        options.acl_users = vec![user.clone(), "other".to_owned()];
        options.client_acl_verify = false;
        let keys = UserKeys::with_options(&options).expect("keys");
        let key = |name: &str| keys.key(name).expect("a key").expose().to_owned();
        let (root, own, other) = (key("root"), key(&user), key("other"));
        let table = [
            (Some("root"), &root, KeyProof::Trusted),
            (Some("root"), &own, KeyProof::Refused),
            (Some(user.as_str()), &own, KeyProof::User(user.clone())),
            (Some(user.as_str()), &root, KeyProof::Trusted),
            (Some(user.as_str()), &other, KeyProof::Refused),
            (Some("nobody-else"), &own, KeyProof::Refused),
            (
                Some("sudo_alice"),
                &root,
                KeyProof::Sudo("alice".to_owned()),
            ),
            (Some("sudo_alice"), &own, KeyProof::Refused),
            (None, &root, KeyProof::Trusted),
            (None, &own, KeyProof::Refused),
        ];
        for (name, key, expected) in table {
            assert_eq!(keys.authenticate(name, key), expected, "{name:?}");
        }
        for name in [None, Some("root"), Some("sudo_alice"), Some(user.as_str())] {
            for wrong in ["", "wrong", &root[..75]] {
                assert_eq!(keys.authenticate(name, wrong), KeyProof::Refused);
            }
        }
        assert!(keys.verify(&user, &own) && !keys.verify(&user, &other));
    }
}

mod rotation {
    use super::*;

    #[test]
    fn each_version_has_its_own_rules_for_the_dropfile() {
        let not_private = Dropfile::Ignored("its mode is not 0400");
        let not_ours = Dropfile::Ignored("it does not hold the id of this master");
        let table = [
            (Compat::V3006, "", 0o400, Dropfile::Rotate, false),
            (Compat::V3006, "", 0o600, not_private, false),
            (Compat::V3007, "host_master", 0o400, Dropfile::Rotate, false),
            (Compat::V3008, "host_master", 0o400, Dropfile::Rotate, false),
            (Compat::V3008, "host_master", 0o600, not_private, true),
            (Compat::V3008, "other_master", 0o400, not_ours, true),
            (Compat::V3007, "", 0o400, not_ours, true),
        ];
        for (compat, content, mode, expected, stays) in table {
            let (_dir, options) = place(compat);
            fs::create_dir_all(&options.cachedir).expect("cachedir");
            let path = options.cachedir.join(".dfn");
            assert_eq!(dropfile::take_with(&options).expect("none"), Dropfile::None);
            fs::write(&path, content).expect("a dropfile");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
            assert_eq!(dropfile::check_with(&options).expect("checked"), expected);
            assert_eq!(dropfile::take_with(&options).expect("taken"), expected);
            assert_eq!(path.exists(), stays, "{compat} {content:?} {mode:o}");
        }
    }
}
