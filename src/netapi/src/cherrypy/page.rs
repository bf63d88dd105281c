//! The pages by name, their methods and what they take.

use saltern_config::ApiServer;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Index,
    Login,
    Logout,
    Token,
    Minions,
    Run,
    Jobs,
    Keys,
    Stats,
    App,
}

impl Page {
    pub(super) fn named(name: &str, server: &ApiServer) -> Option<Self> {
        let page = match name {
            "" | "index" => Self::Index,
            "login" => Self::Login,
            "logout" => Self::Logout,
            "token" => Self::Token,
            "minions" => Self::Minions,
            "run" => Self::Run,
            "jobs" => Self::Jobs,
            "keys" => Self::Keys,
            "stats" => Self::Stats,
            name if name == server.app_path.trim_start_matches('/') => Self::App,
            _ => return None,
        };
        let of_sessions = [Self::Login, Self::Logout, Self::Minions, Self::Jobs];
        (server.enable_sessions || !of_sessions.contains(&page)).then_some(page)
    }

    /// Its methods, as the header `Allow` names them.
    pub(super) fn allowed(self) -> &'static str {
        match self {
            Self::Stats | Self::App => "GET, HEAD",
            // Each has both: what a page lacks it has from the index.
            _ => "GET, HEAD, POST",
        }
    }

    /// Whether it takes a session whatever the method.
    pub(super) fn needs_session(self, server: &ApiServer) -> bool {
        match self {
            Self::Minions | Self::Jobs | Self::Logout => true,
            Self::Stats => !server.stats_disable_auth,
            _ => false,
        }
    }

    /// The most path segments behind its name.
    pub(super) fn segments(self, is_read: bool) -> usize {
        match self {
            Self::Minions | Self::Jobs | Self::Keys if is_read => 1,
            Self::App => usize::MAX,
            _ => 0,
        }
    }

    /// The name of the parameter that stands in the path.
    pub(super) fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Minions | Self::Keys => &["mid"],
            Self::Jobs => &["jid", "timeout"],
            _ => &[],
        }
    }
}
