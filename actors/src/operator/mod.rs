//! Interfaces for operators: the control socket, health, the status port, metrics
//! of the process and under other exporters' names, exported traces.

pub mod control;
pub(crate) mod health;
pub(crate) mod key_metrics;
pub(crate) mod live_master;
pub(crate) mod metric_aliases;
pub(crate) mod process_metrics;
pub(crate) mod status_port;
pub(crate) mod trace_exporter;
