//! The master's configuration: the table of options, the reader of files, and the validation.
//!
//! A configuration is read as stock reads it (same YAML dialect, same include files, same paths
//! below `root_dir`), checked as a whole, and handed out as one plain struct. Nothing is ignored
//! silently: an option that is not honoured, or that nobody knows, is a [`Finding`].
//!
//! Start with [`load_master`], or as a tool beside a master with [`load_for_tools`]. [`yaml`] is of use to others too. This crate opens configuration
//! files and looks at paths; it creates, binds and logs nothing.

mod bridge;
mod changes;
mod check;
mod cluster;
mod connection_string;
mod engines;
mod files;
mod finding;
mod followed;
pub mod glob;
mod identity;
mod listeners;
mod logging;
mod lost;
pub mod master;
mod net_api;
mod option_value;
pub mod options;
mod paths;
mod reader;
mod report;
mod returners;
mod served;
mod site_paths;
mod sql;
mod ssl;
mod syndic;
mod tools;
mod tracing;
mod values;
mod watching;
pub mod yaml;

pub use bridge::{BridgeOptions, PythonBridge};
pub use cluster::{ClusterConfig, MAX_LEASE, is_schema_name};
pub use engines::{EngineConfig, EngineKind, ScriptEngine, ScriptOutput, WebhookEngine};
pub use finding::{ConfigErrors, Finding, Severity, sort as sort_findings};
pub use followed::Followed;
pub use identity::host_id;
pub use listeners::{AlsoListen, TlsConfig};
pub use logging::{LevelOptions, LogOptions, is_place};
pub use lost::missing_roots;
pub use master::{Loaded, MasterConfig, Reading, load_master, read_master};
pub use net_api::{ApiDialect, ApiServer, NetApiOptions};
pub use option_value::{OptionValue, RemoteKind};
pub use options::{Reload, reload_of};
pub use reader::is_secret;
pub use report::render_findings;
pub use returners::{OWN_EVENTS, ReturnerOptions};
pub use served::is_built_in_renderer;
pub use sql::{SqlSchema, SqlStore, SqlTls, SqlTlsMode};
pub use ssl::{PeerCertificates, SslOption, SslProblem, TlsRole, read_ssl};
pub use syndic::{SyndicOptions, UpperMaster};
pub use tools::{is_of_process, load_for_tools, load_for_user};
pub use tracing::TracingOptions;
pub use values::{
    HashType, LocalCacheMirror, LogFormat, LogLevel, Secret, SigningAlgorithm, SyndicFailover,
    SyndicKind, SyndicMode, TransportName,
};
pub use watching::MetricsCompat;
