//! Enumerated types of options.

use zeroize::Zeroizing;

/// A type with a fixed set of names in the configuration.
pub(crate) trait Choice: Sized + Copy + 'static {
    /// Every value with the name that is written for it.
    const CHOICES: &'static [(&'static str, Self)];

    /// The value of a name, whatever its case.
    fn from_name(name: &str) -> Option<Self> {
        Self::CHOICES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// The name as it is written in a configuration.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value of a name, whatever its case.
            pub fn from_name(name: &str) -> Option<Self> {
                <Self as Choice>::from_name(name)
            }
        }

        impl Choice for $name {
            const CHOICES: &'static [(&'static str, Self)] = &[$(($text, Self::$variant),)+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

choice! {
    /// `local_cache_mirror`: what is written as stock's job-cache files.
    LocalCacheMirror {
        /// Jobs and returns.
        Full = "full",
        /// Only the jobs.
        Loads = "loads",
        /// Nothing.
        Off = "off",
    }
}

choice! {
    /// `saltern_syndic`: the program that is the syndic below the masters of `syndic_master`.
    SyndicKind {
        /// This process.
        Native = "native",
        /// Stock's salt-syndic, beside this process.
        Stock = "stock",
        /// None.
        Off = "off",
    }
}

choice! {
    /// `syndic_mode`: what goes up beside returns.
    SyndicMode {
        /// All events of the bus.
        Sync = "sync",
        /// The minions of jobs alone, and no returns of jobs that this master published itself.
        Cluster = "cluster",
    }
}

choice! {
    /// `syndic_failover`: the order in which masters above are tried for what none of them asked for.
    SyndicFailover {
        /// Any order.
        Random = "random",
        /// As `syndic_master` lists them.
        Ordered = "ordered",
    }
}

choice! {
    /// `transport`: the protocol of a pair of ports.
    TransportName {
        /// ZeroMQ.
        ZeroMq = "zeromq",
        /// Salt's own stream of packed maps, with TLS if `ssl` asks for it.
        Tcp = "tcp",
        /// Websockets, since 3007; with TLS as TCP.
        Ws = "ws",
    }
}

choice! {
    /// `hash_type`: the digest of fingerprints, file hashes and job directories.
    HashType {
        /// MD5; only for reading what an old site has.
        Md5 = "md5",
        /// SHA-1.
        Sha1 = "sha1",
        /// SHA-224.
        Sha224 = "sha224",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-384.
        Sha384 = "sha384",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

choice! {
    /// `publish_signing_algorithm`, by its names on the wire.
    SigningAlgorithm {
        /// PKCS#1 v1.5 over SHA-1.
        Pkcs1v15Sha1 = "PKCS1v15-SHA1",
        /// PKCS#1 v1.5 over SHA-224.
        Pkcs1v15Sha224 = "PKCS1v15-SHA224",
    }
}

choice! {
    /// `log_level` and `log_level_logfile`, by stock's names, most talkative first.
    LogLevel {
        /// Everything.
        All = "all",
        /// Stock's level below trace.
        Garbage = "garbage",
        /// Trace.
        Trace = "trace",
        /// Debug.
        Debug = "debug",
        /// Stock's level between debug and info.
        Profile = "profile",
        /// Info.
        Info = "info",
        /// Warning, the default.
        Warning = "warning",
        /// Error.
        Error = "error",
        /// Critical.
        Critical = "critical",
        /// Nothing.
        Quiet = "quiet",
    }
}

choice! {
    /// `saltern_log_format`: what a line of the log looks like.
    LogFormat {
        /// For people: as `log_fmt_console` and `log_fmt_logfile` say.
        Text = "text",
        /// For programs: one JSON object a line.
        Json = "json",
    }
}

impl LogLevel {
    /// The accepted names, for an error text.
    pub const NAMES: &'static str =
        "one of all, garbage, trace, debug, profile, info, warning, error, critical, quiet";
}

/// A passphrase from the configuration. It is wiped when dropped and cannot be printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn new(text: &str) -> Secret {
        Secret(Zeroizing::new(text.to_owned()))
    }

    /// The passphrase, for the one place that opens the key.
    pub fn expose(&self) -> &str {
        &self.0
    }
}
