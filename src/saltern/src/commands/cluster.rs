//! `saltern cluster`: the tables of a cluster of masters in PostgreSQL, and its members.

mod verify;

use std::fs::File;
use std::path::{Path, PathBuf};

use saltern_base::exit::Exit;
use saltern_base::{escaped_for_terminal, hex};
use saltern_config::{ClusterConfig, MasterConfig};
use saltern_crypto::StateCipher;
use saltern_sql::{
    ClusterError, ClusterState, Member, Tables, cluster_place, cluster_secret, cluster_state,
    contract_cluster, export_jobs, forget_member, import_jobs, init_cluster, set_cluster_secret,
};
use saltern_store::jobs::Moved;
use saltern_store::shared_state::minion_keys::keys_not_shared;
use saltern_store::shared_state::{create_secret, read_cipher};
use saltern_store::sqlite::{NewSqliteTables, SqliteTables};
use saltern_store::{SharedKeys, StoreError};
use serde::Serialize;

use super::master::claim;
use super::{chain, complain, load_for_tool, say, say_json};
use crate::{ConfigArgument, privileges};

/// First words of a member's note about its keys.
pub(super) const ABOUT_KEYS: &str = "keys of minions";

/// The same about grains and mines.
pub(super) const ABOUT_DATA: &str = "grains and mines";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make the tables of the cluster that saltern_cluster names, or what those of an older release lack,
    /// and its secret_file, unless they are there.
    Init {
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Show the lease and the masters of the cluster; exit code 1 when none is active.
    Status {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Move this master's job database into the cluster, which has no jobs yet; all masters are stopped.
    Import {
        /// The job database, when it is not that of the configuration.
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Move the cluster's jobs into a new job database of this master; all masters are stopped.
    Export {
        /// The new job database, when it is not that of the configuration.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Compare this member with the others by the summaries that they wrote when it ran there; exit code 1 when
    /// they differ, one has none of the last hour, or there is no other member.
    Verify {
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// End an upgrade: masters of the release before cannot be members any more. Each member that lives is of the
    /// present release.
    Contract {
        #[command(flatten)]
        config: ConfigArgument,
    },
    /// Remove a member that is gone for good.
    Leave {
        /// The id of the master.
        name: String,
        #[command(flatten)]
        config: ConfigArgument,
    },
}

impl Action {
    const fn config(&self) -> &ConfigArgument {
        match self {
            Self::Init { config }
            | Self::Status { config, .. }
            | Self::Verify { config }
            | Self::Contract { config }
            | Self::Import { config, .. }
            | Self::Export { config, .. }
            | Self::Leave { config, .. } => config,
        }
    }
}

/// 0 when it is done, or a master is active; 1 when none is, members differ or there is one alone, or no such member is there; 64 without
/// `saltern_cluster` or tables, or where masters have to be stopped first; 69 without a connection, while tables
/// are in use, or when a job database cannot be read or made; 77 without the rights of the master's user.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let loaded = match load_for_tool(arguments.action.config()) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let Some(cluster) = &loaded.config.saltern_cluster else {
        complain("saltern_cluster is not set: this master is a member of no cluster");
        return Exit::Usage;
    };
    let lock = match &arguments.action {
        Action::Import { .. } | Action::Export { .. } => match alone(&loaded.config) {
            Ok(lock) => Some(lock),
            Err(exit) => return exit,
        },
        _ => None,
    };
    let done = match &arguments.action {
        Action::Init { .. } => init(&loaded.config, cluster),
        Action::Status { json, .. } => status(&loaded.config, cluster, *json),
        Action::Verify { .. } => verify::verify(&loaded.config, cluster),
        Action::Contract { .. } => contract(cluster),
        Action::Leave { name, .. } => leave(cluster, name),
        Action::Import { from, .. } => import(&loaded.config, cluster, from.as_ref()),
        Action::Export { to, .. } => export(&loaded.config, cluster, to.as_ref()),
    };
    drop(lock);
    done.unwrap_or_else(|error| {
        complain(&chain(&error));
        match error {
            ClusterError::MovedBefore { .. } => Exit::Ok,
            ClusterError::Store(StoreError::Option { .. } | StoreError::Missing { .. }) => {
                Exit::Usage
            }
            ClusterError::Store(_) | ClusterError::TablesInUse { .. } => Exit::Unavailable,
            _ => Exit::Usage,
        }
    })
}

fn init(config: &MasterConfig, cluster: &ClusterConfig) -> Result<Exit, ClusterError> {
    let place = cluster_place(cluster)?;
    let done = match init_cluster(cluster)? {
        Tables::Made => "the tables are made",
        Tables::Upgraded => "what the tables lacked is added",
        Tables::Present => "the tables are there already",
    };
    say(&format!("{place}: {done}\n"));
    if let Some(path) = &cluster.secret_file {
        init_secret(config, (cluster, path))?;
    }
    Ok(Exit::Ok)
}

/// Makes the secret of the cluster, unless it has one, and compares it with that of the other members.
fn init_secret(
    config: &MasterConfig,
    (cluster, path): (&ClusterConfig, &Path),
) -> Result<(), ClusterError> {
    // With a secret of its own this member could not read what the others share.
    if cluster_secret(cluster)?.is_none() {
        let owner = privileges::account(&config.user).ok();
        let made = create_secret(path, owner.map(|account| account.uid.as_raw()))?;
        let path = path.display();
        match made {
            true => say(&format!(
                "{path}: the secret is made; copy it to the other members, readable by their masters alone\n"
            )),
            false => say(&format!("{path}: the secret is there already\n")),
        }
    }
    if let Some(cipher) = cipher_of(cluster)? {
        set_cluster_secret(cluster, &hex(cipher.check()))?;
    }
    Ok(())
}

/// The keys under which the members of a cluster share their state, if they do.
///
/// # Errors
/// The file of the secret is missing, readable by others, or too short.
pub(crate) fn cipher_of(cluster: &ClusterConfig) -> Result<Option<StateCipher>, StoreError> {
    let path = cluster.secret_file.as_deref();
    path.map(|path| read_cipher(path, &cluster.name))
        .transpose()
}

fn status(
    config: &MasterConfig,
    cluster: &ClusterConfig,
    json: bool,
) -> Result<Exit, ClusterError> {
    let place = cluster_place(cluster)?;
    let state = cluster_state(cluster)?;
    // Not said to those who may not read the files of the master.
    let not_shared = keys_not_shared(config).ok().flatten();
    let not_shared = not_shared.filter(|_| cluster.share_keys);
    match json {
        true => {
            let report = Report::of(&cluster.name, &place, &state);
            say_json(&Report {
                keys_not_shared: not_shared.as_deref(),
                ..report
            });
        }
        false => {
            let mut text = as_text(&cluster.name, &place, &state);
            for (member, why) in notes(&state, &config.id) {
                text += &format!("\"{member}\" does not share all: {why}\n");
            }
            if let Some(why) = not_shared {
                text += &format!("keys of this member are not shared: {why}\n");
            }
            say(&text);
        }
    }
    Ok(match state.active() {
        Some(_) => Exit::Ok,
        None => Exit::Failure,
    })
}

/// Reasons of live members for what they do not share, a line each. Of the keys of this one its own file says it sooner.
fn notes<'s>(state: &'s ClusterState, id: &str) -> impl Iterator<Item = (&'s str, String)> {
    let members = state.members.iter().filter(|member| member.is_alive);
    members.flat_map(move |member| {
        let is_own = member.name == id;
        let lines = member.note.lines();
        let lines = lines.filter(move |line| !(is_own && line.starts_with(ABOUT_KEYS)));
        // Whoever writes to the database writes to no terminal.
        lines.map(move |line| {
            (
                member.name.as_str(),
                escaped_for_terminal(line).into_owned(),
            )
        })
    })
}

fn contract(cluster: &ClusterConfig) -> Result<Exit, ClusterError> {
    contract_cluster(cluster)?;
    say("the tables are those of this release: masters of the release before are refused\n");
    Ok(Exit::Ok)
}

fn leave(cluster: &ClusterConfig, name: &str) -> Result<Exit, ClusterError> {
    if forget_member(cluster, name)? {
        say(&format!("\"{name}\" is no member any more\n"));
        return Ok(Exit::Ok);
    }
    complain(&format!("the cluster has no member \"{name}\""));
    Ok(Exit::Failure)
}

/// Becomes the master's user, whose files are made, in the place of a master: none starts meanwhile.
fn alone(config: &MasterConfig) -> Result<File, Exit> {
    privileges::become_user(&config.user).map_err(|error| {
        complain(&chain(&error));
        Exit::NoPermission
    })?;
    claim(&config.cachedir)
}

fn import(
    config: &MasterConfig,
    cluster: &ClusterConfig,
    from: Option<&PathBuf>,
) -> Result<Exit, ClusterError> {
    let path = from.unwrap_or(&config.saltern_job_database);
    let moved = import_jobs(cluster, &mut SqliteTables::open(path)?)?;
    let place = cluster_place(cluster)?;
    say_moved(&moved, &path.display().to_string(), &place);
    Ok(Exit::Ok)
}

fn export(
    config: &MasterConfig,
    cluster: &ClusterConfig,
    to: Option<&PathBuf>,
) -> Result<Exit, ClusterError> {
    let path = to.unwrap_or(&config.saltern_job_database);
    let place = cluster_place(cluster)?;
    let moved = export_jobs(cluster, || NewSqliteTables::create(path))?;
    // Another member may have published under it since, and its numbers must not go back.
    SharedKeys::forget(config)?;
    say_moved(&moved, &place, &path.display().to_string());
    Ok(Exit::Ok)
}

fn say_moved(moved: &Moved, from: &str, to: &str) {
    let mut text = format!("{from}: moved to {to}\n");
    for (table, rows) in moved {
        text += &format!("{rows:>12} {table}\n");
    }
    say(&text);
}

/// The present role of a member.
fn role<'m>(state: &ClusterState, member: &'m Member) -> &'m str {
    match (
        member.is_standby(),
        state.active() == Some(member.name.as_str()),
    ) {
        (_, true) => "active",
        (true, false) => "standby",
        (false, false) => "gone",
    }
}

fn seconds(milliseconds: i64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

fn as_text(name: &str, place: &str, state: &ClusterState) -> String {
    let lease = match &state.lease {
        None => "nobody had it yet".to_owned(),
        Some(lease) if lease.is_free() && lease.owner.is_empty() => {
            format!("free, given up; epoch {}", lease.epoch)
        }
        Some(lease) if lease.is_free() && lease.remaining > 0 => format!(
            "free, \"{}\" had it before the database's clock was set back; epoch {}",
            lease.owner, lease.epoch
        ),
        Some(lease) if lease.is_free() => {
            let (owner, ago) = (&lease.owner, seconds(-lease.remaining));
            format!(
                "free, \"{owner}\" did not renew it, over for {ago}; epoch {}",
                lease.epoch
            )
        }
        Some(lease) => {
            let (owner, left) = (&lease.owner, seconds(lease.remaining));
            format!(
                "\"{owner}\", for {left} unless it is renewed; epoch {}",
                lease.epoch
            )
        }
    };
    let (epoch, head) = (state.epoch, state.head);
    let mut text = format!(
        "cluster: {name} in {place}\nlease: {lease}\njob database: epoch {epoch}, {head} batches\n"
    );
    if let Some(layout) = state.layout {
        text += &format!("tables: layout {}", layout.version);
        text += &match layout.is_expanded() {
            true if layout.admits_release_before() => format!(
                ", which masters that know layout {} use, too, until \"saltern cluster contract\"\n",
                layout.floor
            ),
            true => format!(
                "; masters that know layout {} go on until they are restarted, and do not take over any more\n",
                layout.floor
            ),
            false => "\n".to_owned(),
        };
    }
    for member in &state.members {
        let Member {
            name,
            address,
            version,
            age,
            ..
        } = member;
        let (role, age) = (role(state, member), seconds(*age));
        text += &format!("{role:8} {name} at {address}, release {version}, seen {age} ago\n");
    }
    if state.members.is_empty() {
        text += "no master is a member\n";
    }
    text
}

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    active: Option<&'a str>,
    cluster: &'a str,
    database: &'a str,
    epoch: i64,
    head: i64,
    /// Of this member: why it does not share the keys of minions as it should.
    keys_not_shared: Option<&'a str>,
    layout: Option<i64>,
    layout_floor: Option<i64>,
    lease: Option<LeaseReport<'a>>,
    members: Vec<MemberReport<'a>>,
}

#[derive(Serialize)]
struct LeaseReport<'a> {
    epoch: i64,
    owner: &'a str,
    remaining_milliseconds: i64,
}

#[derive(Serialize)]
struct MemberReport<'a> {
    address: &'a str,
    layout: i64,
    milliseconds_since_seen: i64,
    name: &'a str,
    /// Reasons for what it does not share as it should, a line each.
    note: &'a str,
    role: &'a str,
    version: &'a str,
}

impl<'a> Report<'a> {
    fn of(cluster: &'a str, database: &'a str, state: &'a ClusterState) -> Self {
        let members = state.members.iter().map(|member| MemberReport {
            address: &member.address,
            layout: member.layout,
            milliseconds_since_seen: member.age,
            name: &member.name,
            note: &member.note,
            role: role(state, member),
            version: &member.version,
        });
        Self {
            active: state.active(),
            cluster,
            database,
            epoch: state.epoch,
            head: state.head,
            keys_not_shared: None,
            layout: state.layout.map(|layout| layout.version),
            layout_floor: state.layout.map(|layout| layout.floor),
            lease: state.lease.as_ref().map(|lease| LeaseReport {
                epoch: lease.epoch,
                owner: &lease.owner,
                remaining_milliseconds: lease.remaining,
            }),
            members: members.collect(),
        }
    }
}
