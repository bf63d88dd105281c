//! The tables of wire commands: everything that dispatch, limits and replay protection know of one.
//!
//! A command is one file named as on the wire and one row here. The row hands the command what it
//! takes and nothing else. What has no row does not exist: an unused handler does not compile.

use std::net::IpAddr;
use std::sync::Arc;

use saltern_wire::msgpack::{MapView, Value};

use crate::credentials::{LoggedIn, NotProved, Sender};
use crate::envelope::Sealed;
use crate::files::FileCommand;
use crate::handle::Class;
use crate::master_gate::{Admitted, FunctionKind};
use crate::mine::MineCommand;
use crate::origin::Origin;
use crate::peer_publish::PeerPublish;
use crate::{
    Outcome, Services, auth, files, get_token, master_opts, master_tops, mine, minion_event,
    minion_runner, mk_token, peer_publish, pillar, ping, pub_ret, publish, register_resources,
    return_, revoke_auth, runner, saltern_batch, saltern_query, saltern_syndic_frame,
    saltern_syndic_inventory, saltern_syndic_verdicts, syndic_return, verify_minion, wheel,
};

/// Handling of a sealed request whose bytes arrive a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// It is refused: it would be carried out once more.
    Refused,
    /// It is answered: repeating it changes nothing.
    Answered,
    /// It is answered unless it asks for a jid of its own: a return is recorded once for each jid
    /// and minion.
    AnsweredByJid,
    /// It is answered while no newer one came, and else answered without effect: it brings data of
    /// the minion along, and older data would replace newer data. Stock's minion sends the very
    /// same bytes again when this command gets no answer (`_send_with_retry` in
    /// `salt/channel/client.py`); everything else it seals anew.
    AnsweredWhileNewest,
}

/// Command that only an authenticated minion can send: its handler takes [`Sealed`], which only
/// `envelope::open` makes, out of a load sealed with the session of the minion.
pub(crate) struct MinionCommand {
    /// Its name on the wire, in logs and in metrics.
    pub(crate) name: &'static str,
    /// Handling of a copy of a request.
    pub(crate) repeated: Repeated,
    /// The handler.
    pub(crate) run: fn(Sealed, &Arc<Services>) -> Outcome,
}

impl MinionCommand {
    /// The command of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        MINION_COMMANDS.iter().find(|command| command.name == name)
    }
}

/// Commands of authenticated minions, sorted by name.
pub(crate) static MINION_COMMANDS: &[MinionCommand] = {
    use Repeated::{Answered, AnsweredByJid, AnsweredWhileNewest, Refused};
    type Run = fn(Sealed, &Arc<Services>) -> Outcome;
    const fn row(name: &'static str, repeated: Repeated, run: Run) -> MinionCommand {
        MinionCommand {
            name,
            repeated,
            run,
        }
    }
    &[
        row("_dir_list", Answered, |request, services| {
            files::handle(FileCommand::DirList, request, services)
        }),
        row("_file_envs", Answered, |request, services| {
            files::handle(FileCommand::Envs, request, services)
        }),
        row("_file_find", Answered, |request, services| {
            files::handle(FileCommand::Find, request, services)
        }),
        row("_file_hash", Answered, |request, services| {
            files::handle(FileCommand::Hash, request, services)
        }),
        row("_file_hash_and_stat", Answered, |request, services| {
            files::handle(FileCommand::HashAndStat, request, services)
        }),
        row("_file_list", Answered, |request, services| {
            files::handle(FileCommand::List, request, services)
        }),
        row("_file_list_emptydirs", Answered, |request, services| {
            files::handle(FileCommand::ListEmptyDirs, request, services)
        }),
        row("_file_recv", Refused, |request, services| {
            files::handle(FileCommand::Receive, request, services)
        }),
        row("_master_opts", Answered, |request, services| {
            master_opts::handle(&request, services, &services.content)
        }),
        row("_master_tops", Answered, master_tops::handle),
        row("_mine", Refused, |request, services| {
            mine::handle(MineCommand::Store, request, services)
        }),
        row("_mine_delete", Refused, |request, services| {
            mine::handle(MineCommand::Delete, request, services)
        }),
        row("_mine_flush", Refused, |request, services| {
            mine::handle(MineCommand::Flush, request, services)
        }),
        row("_mine_get", Answered, |request, services| {
            mine::handle(MineCommand::Get, request, services)
        }),
        row("_minion_event", Refused, |request, services| {
            minion_event::handle(request, services)
        }),
        row("_pillar", AnsweredWhileNewest, pillar::handle),
        row("_register_resources", Refused, |request, services| {
            register_resources::handle(request, services)
        }),
        row("_return", AnsweredByJid, |request, services| {
            return_::handle(request, services)
        }),
        row("_serve_file", Answered, |request, services| {
            files::handle(FileCommand::Serve, request, services)
        }),
        row("_symlink_list", Answered, |request, services| {
            files::handle(FileCommand::SymlinkList, request, services)
        }),
        row("_syndic_return", Refused, |request, services| {
            syndic_return::handle(request, services)
        }),
        row("minion_pub", Refused, |request, services| {
            peer_publish::handle(PeerPublish::Begin, request, services)
        }),
        row("minion_publish", Refused, |request, services| {
            peer_publish::handle(PeerPublish::Wait, request, services)
        }),
        row("minion_runner", Refused, minion_runner::handle),
        row("pub_ret", Answered, pub_ret::handle),
        row("revoke_auth", Refused, |request, services| {
            revoke_auth::handle(&request, services, (&services.keys, &services.minions))
        }),
        row("saltern_syndic_frame", Refused, |request, services| {
            saltern_syndic_frame::handle(&request, services)
        }),
        row("saltern_syndic_inventory", Refused, |request, services| {
            saltern_syndic_inventory::handle(&request, services)
        }),
        row("saltern_syndic_verdicts", Refused, |request, services| {
            saltern_syndic_verdicts::handle(&request, services)
        }),
        row("verify_minion", Refused, |request, _| {
            verify_minion::handle(&request)
        }),
    ]
};

/// Request in the clear, of which nothing is proved.
pub(crate) struct ClearRequest<'a> {
    /// The load.
    pub(crate) load: &'a MapView,
    /// The version of the protocol that the envelope names.
    pub(crate) version: i64,
    /// The queue in which it waited.
    pub(crate) class: Class,
    /// Its origin.
    pub(crate) origin: Origin,
}

/// Command that is sent in the clear.
pub(crate) struct ClearCommand {
    /// Its name on the wire, in logs and in metrics.
    pub(crate) name: &'static str,
    /// Senders that are admitted, with the handler for them.
    pub(crate) handler: ClearHandler,
}

/// Handler of a clear command, by the credentials that it takes.
#[derive(Clone, Copy)]
pub(crate) enum ClearHandler {
    /// None: it is open to all, or its load is its own proof. Its load is small.
    Open(fn(ClearRequest<'_>, &Services) -> Outcome),
    /// Credentials. The handler requires the proof as an argument, so none runs before it. Its load
    /// may be large.
    Proved(ProvedHandler),
}

/// Handler of a clear command that takes credentials.
#[derive(Clone, Copy)]
pub(crate) enum ProvedHandler {
    /// A name and a password that a backend knows.
    LogIn(fn(&Value, Result<LoggedIn, NotProved>, &Services) -> Outcome),
    /// The key of a local user in the load; or a token, or a name and a password, in its `kwargs`.
    Job(fn(&Value, Result<Sender, NotProved>, &Services) -> Outcome),
    /// The same credentials, all in the load itself, for a function of the master.
    Function(
        FunctionKind,
        fn(&Value, Admitted, IpAddr, &Arc<Services>) -> Outcome,
    ),
    /// The same credentials for a query, which knows the function whose rules hold for it.
    Query(fn(&Value, Result<Sender, NotProved>, &Arc<Services>) -> Outcome),
}

impl ClearCommand {
    /// The command of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        CLEAR_COMMANDS.iter().find(|command| command.name == name)
    }

    /// Whether its load may be large.
    pub(crate) fn takes_large_loads(&self) -> bool {
        matches!(self.handler, ClearHandler::Proved(_))
    }
}

/// Clear commands, sorted by name.
pub(crate) static CLEAR_COMMANDS: &[ClearCommand] = {
    const fn open(
        name: &'static str,
        run: fn(ClearRequest<'_>, &Services) -> Outcome,
    ) -> ClearCommand {
        ClearCommand {
            name,
            handler: ClearHandler::Open(run),
        }
    }
    const fn proved(name: &'static str, handler: ProvedHandler) -> ClearCommand {
        ClearCommand {
            name,
            handler: ClearHandler::Proved(handler),
        }
    }
    &[
        open("_auth", auth::handle),
        open("get_token", |request, services| {
            get_token::handle(request.load, services, &services.users)
        }),
        proved(
            "mk_token",
            ProvedHandler::LogIn(|load, known, services| {
                mk_token::handle(load, known, services, &services.users)
            }),
        ),
        open("ping", |request, _| ping::handle(request.load)),
        proved("publish", ProvedHandler::Job(publish::handle)),
        proved(
            "runner",
            ProvedHandler::Function(FunctionKind::Runner, runner::handle),
        ),
        proved(
            saltern_batch::COMMAND,
            ProvedHandler::Job(saltern_batch::handle),
        ),
        proved(
            saltern_query::COMMAND,
            ProvedHandler::Query(saltern_query::handle),
        ),
        proved(
            "wheel",
            ProvedHandler::Function(FunctionKind::Wheel, |load, admitted, _, services| {
                wheel::handle(load, admitted, services)
            }),
        ),
    ]
};

/// Every command that a minion can send encrypted, for tables that have to be complete.
pub fn minion_commands() -> impl Iterator<Item = &'static str> {
    MINION_COMMANDS.iter().map(|command| command.name)
}

/// Every command that is sent in the clear, likewise.
pub fn clear_commands() -> impl Iterator<Item = &'static str> {
    CLEAR_COMMANDS.iter().map(|command| command.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of stock (`expose_methods` in `salt/master.py`), 3008's included.
    const OF_STOCK: &str = "_auth _dir_list _file_envs _file_find _file_hash _file_hash_and_stat \
        _file_list _file_list_emptydirs _file_recv _master_opts _master_tops _mine _mine_delete \
        _mine_flush _mine_get _minion_event _pillar _register_resources _return _serve_file \
        _symlink_list _syndic_return get_token minion_pub minion_publish minion_runner mk_token ping \
        pub_ret publish revoke_auth runner verify_minion wheel";

    #[test]
    fn command_that_stock_lacks_is_in_the_list_of_differences() {
        let page = include_str!("../DIFFERENCES.md");
        let is_of_stock = |name: &&str| OF_STOCK.split(' ').any(|known| known == *name);
        let ours = minion_commands().chain(clear_commands());
        let ours = ours.filter(|name| !is_of_stock(name));
        let unlisted: Vec<_> = ours
            .filter(|name| !page.contains(&format!("`{name}`")))
            .collect();
        assert!(
            unlisted.is_empty(),
            "no row in DIFFERENCES.md: {unlisted:?}"
        );
    }

    #[test]
    fn rows_are_sorted_and_no_command_has_two() {
        for names in [
            minion_commands().collect::<Vec<_>>(),
            clear_commands().collect(),
        ] {
            let in_order = names.windows(2).all(|pair| pair.first() < pair.last());
            assert!(in_order, "{names:?}");
        }
    }
}
