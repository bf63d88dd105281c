//! The options of each command, as tables, and a parser that accepts and refuses as Python's
//! `optparse` does, which stock's commands are built on.
//!
//! A table ([`Grammar`]) binds each option to a field of the command's own struct: [`SaltOptions`],
//! [`KeyOptions`], [`RunOptions`], [`CopyOptions`], [`MasterOptions`]. A field is `None` until the command line, a Saltfile
//! or the configuration gives it ([`Grammar::fill`]); the default is the reader's. The tables are the
//! union of what 3006, 3007 and 3008 take.

mod common;
mod copy;
mod definition;
mod ending;
mod grammar;
mod help;
mod key;
mod master;
mod parse;
mod read;
mod run;
mod salt;

pub use common::{
    ConfigOptions, EauthOptions, LogOptions, OutputOptions, Password, TargetOptions, TargetType,
};
pub use copy::{CopyCommand, CopyOptions};
pub use definition::{Action, Group, OptionDefinition, OptionValue, Origin};
pub use ending::Ending;
pub use grammar::{Grammar, Parsed};
pub use key::{KeyCommand, KeyOptions};
pub use master::MasterOptions;
pub use read::{CommandOptions, read, read_by};
pub use run::{RunCommand, RunOptions};
pub use salt::{Call, SaltCommand, SaltOptions, TargetText};
