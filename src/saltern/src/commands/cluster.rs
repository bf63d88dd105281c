//! `saltern cluster`: the tables of a cluster of masters in PostgreSQL, and its members.

use saltern_base::exit::Exit;
use saltern_config::ClusterConfig;
use saltern_sql::{ClusterError, ClusterState, Member, cluster_place, cluster_state, init_cluster};
use serde::Serialize;

use super::{chain, complain, load_for_tool, say, say_json};
use crate::ConfigArgument;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make the tables of the cluster that saltern_cluster names, unless they are there.
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
}

/// 0 when it is done, or a master is active; 64 without `saltern_cluster` or tables, 69 without a
/// connection.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    let (Action::Init { config } | Action::Status { config, .. }) = &arguments.action;
    let loaded = match load_for_tool(config) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let Some(cluster) = &loaded.config.saltern_cluster else {
        complain("saltern_cluster is not set: this master is a member of no cluster");
        return Exit::Usage;
    };
    let done = match &arguments.action {
        Action::Init { .. } => init(cluster),
        Action::Status { json, .. } => status(cluster, *json),
    };
    done.unwrap_or_else(|error| {
        complain(&chain(&error));
        match error {
            ClusterError::Store(_) => Exit::Unavailable,
            _ => Exit::Usage,
        }
    })
}

fn init(cluster: &ClusterConfig) -> Result<Exit, ClusterError> {
    let place = cluster_place(cluster)?;
    match init_cluster(cluster)? {
        true => say(&format!("{place}: the tables are made\n")),
        false => say(&format!("{place}: the tables are there already\n")),
    }
    Ok(Exit::Ok)
}

fn status(cluster: &ClusterConfig, json: bool) -> Result<Exit, ClusterError> {
    let place = cluster_place(cluster)?;
    let state = cluster_state(cluster)?;
    match json {
        true => say_json(&Report::of(&cluster.name, &place, &state)),
        false => say(&as_text(&cluster.name, &place, &state)),
    }
    Ok(match state.active() {
        Some(_) => Exit::Ok,
        None => Exit::Failure,
    })
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
    milliseconds_since_seen: i64,
    name: &'a str,
    role: &'a str,
    version: &'a str,
}

impl<'a> Report<'a> {
    fn of(cluster: &'a str, database: &'a str, state: &'a ClusterState) -> Self {
        let members = state.members.iter().map(|member| MemberReport {
            address: &member.address,
            milliseconds_since_seen: member.age,
            name: &member.name,
            role: role(state, member),
            version: &member.version,
        });
        Self {
            active: state.active(),
            cluster,
            database,
            epoch: state.epoch,
            head: state.head,
            lease: state.lease.as_ref().map(|lease| LeaseReport {
                epoch: lease.epoch,
                owner: &lease.owner,
                remaining_milliseconds: lease.remaining,
            }),
            members: members.collect(),
        }
    }
}
