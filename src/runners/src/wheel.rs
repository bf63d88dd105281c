//! The wheel modules: functions that look at or change the master itself (`salt/wheel` of stock).

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod key;
pub(crate) mod minions;
pub(crate) mod roots;
