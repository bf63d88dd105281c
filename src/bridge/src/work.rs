//! The kinds of calls into Python, and their encoding for the pipe.
//!
//! Pillars and arguments are secrets: nothing here can be printed, and what is packed is wiped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use saltern_wire::msgpack::{Dialect, Encoder, Value};
use zeroize::Zeroizing;

use crate::FrameTooLong;
use crate::exchange::{self, LENGTH};
use crate::lane::Lane;
use crate::returner::Step;

/// The minion whose pillar is compiled, as the loaders of Python need it. One is made for each
/// compilation: helpers keep the loaders of the last one they met.
pub struct Subject {
    token: u64,
    /// The minion's id.
    pub minion: String,
    /// Its grains.
    pub grains: Arc<Value>,
    /// The environment of its states.
    pub saltenv: Option<String>,
    /// The environment of its pillar.
    pub pillarenv: Option<String>,
    /// The pillar that modules see.
    pub pillar: Arc<Value>,
    /// Parts of the minion's configuration, for external pillars.
    pub extra_minion_data: Option<Value>,
}

impl Subject {
    /// A compilation that no helper knows yet.
    pub fn new(minion: &str, grains: Arc<Value>, pillar: Arc<Value>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            token: LAST.fetch_add(1, Ordering::Relaxed),
            minion: minion.to_owned(),
            grains,
            saltenv: None,
            pillarenv: None,
            pillar,
            extra_minion_data: None,
        }
    }

    fn pack(&self, out: &mut Encoder<'_>) {
        out.str("subject").map(7);
        out.str("token").uint(self.token);
        out.str("minion").str(&self.minion);
        out.str("grains").value(&self.grains);
        text(out.str("saltenv"), self.saltenv.as_deref());
        text(out.str("pillarenv"), self.pillarenv.as_deref());
        out.str("pillar").value(&self.pillar);
        let extra = self.extra_minion_data.as_ref();
        out.str("extra_minion_data")
            .value(extra.unwrap_or(&Value::Nil));
    }
}

/// A call of a function that users run.
pub struct Call {
    /// The function, such as `state.orchestrate`.
    pub fun: String,
    /// Arguments by position.
    pub positional: Vec<Value>,
    /// Arguments by name.
    pub named: Vec<(String, Value)>,
    /// The id of the call.
    pub jid: String,
    /// The tag that its events begin with.
    pub tag: String,
    /// The user that asks.
    pub user: String,
}

/// A piece of work for Python, with the result that it gives.
pub enum Work<'a> {
    /// A renderer of SLS files; gives `{"text": …}` or `{"data": …}`.
    Render {
        /// The compilation that it belongs to.
        subject: &'a Subject,
        /// Its name.
        renderer: &'a str,
        /// The rest of the first line of the file.
        argument: &'a str,
        /// Result of the renderer before it, or the text of the file.
        input: &'a Value,
        /// The environment of the file.
        saltenv: &'a Value,
        /// The name of the file with dots.
        sls: &'a Value,
        /// Path of the file.
        path: &'a str,
        /// Names that an include gave along.
        defaults: Vec<(&'a str, &'a Value)>,
    },
    /// An external pillar; gives what it returns.
    ExtPillar {
        /// The compilation that it belongs to.
        subject: &'a Subject,
        /// The module.
        name: &'a str,
        /// The pillar as far as it is known.
        pillar: &'a Value,
        /// Its arguments as they are configured.
        arguments: &'a Value,
    },
    /// Whether a function of templates exists, or with a name without a dot, a module of them.
    Has {
        /// The compilation that it belongs to.
        subject: &'a Subject,
        /// `mod.fun` or `mod`.
        name: &'a str,
    },
    /// A function of templates; gives what it returns.
    Function {
        /// The compilation that it belongs to.
        subject: &'a Subject,
        /// `mod.fun`.
        name: &'a str,
        /// Arguments by position.
        positional: &'a [Value],
        /// Arguments by name.
        named: &'a [(String, Value)],
    },
    /// A module of `master_tops`; gives what it returns.
    Tops {
        /// The module.
        name: &'a str,
        /// The options of the minion that asks, with its grains.
        opts: &'a Value,
    },
    /// A module of `external_auth`; gives `known`, and for a known user `groups` and `auth_list`.
    LogIn {
        /// The module.
        eauth: &'a str,
        /// The claimed name of the user.
        username: &'a str,
        /// The proof of it; it is wiped with what is packed.
        password: &'a str,
    },
    /// Calls of a returner; gives for each step nothing, or the text of its exception. Steps after
    /// too many failures in a row are not tried, and have no entry. Each entry is also sent at
    /// once, as an event `step`, so that the finished steps of a call that never returns are known.
    Returner {
        /// The module.
        name: &'a str,
        /// Function that the module must have, or nothing is tried.
        needs: &'a str,
        /// The calls.
        steps: &'a [Step<'a>],
        /// How many failures in a row are too many.
        patience: usize,
    },
    /// A runner function; gives `return`, `success` and perhaps `retcode`.
    Runner(&'a Call),
    /// A wheel function; gives the same.
    Wheel(&'a Call),
    /// A function of a minion that is made of the master's configuration (`salt.client.Caller`);
    /// gives nothing.
    Caller(&'a Call),
}

impl Work<'_> {
    /// Name for error texts.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Render { renderer, .. } => format!("the renderer \"{renderer}\""),
            Self::ExtPillar { name, .. } => format!("the ext_pillar \"{name}\""),
            Self::Has { name, .. } | Self::Function { name, .. } => {
                format!("the function \"{name}\"")
            }
            Self::Tops { name, .. } => format!("the master_tops module \"{name}\""),
            Self::LogIn { eauth, .. } => format!("the external_auth module \"{eauth}\""),
            Self::Returner { name, .. } => format!("the returner \"{name}\""),
            Self::Runner(call) => format!("the runner \"{}\"", call.fun),
            Self::Wheel(call) => format!("the wheel function \"{}\"", call.fun),
            Self::Caller(call) => format!("the function \"{}\" of a minion", call.fun),
        }
    }

    /// The lane that runs it.
    pub(crate) fn lane(&self) -> Lane {
        match self {
            Self::Render { .. }
            | Self::ExtPillar { .. }
            | Self::Has { .. }
            | Self::Function { .. }
            | Self::Tops { .. } => Lane::Pillar,
            Self::LogIn { .. } => Lane::LogIn,
            Self::Returner { .. } => Lane::Returner,
            Self::Runner(_) | Self::Wheel(_) | Self::Caller(_) => Lane::Runner,
        }
    }

    /// Key under which helpers keep the loaders of the compilation.
    pub(crate) fn token(&self) -> Option<u64> {
        match self {
            Self::Render { subject, .. }
            | Self::ExtPillar { subject, .. }
            | Self::Has { subject, .. }
            | Self::Function { subject, .. } => Some(subject.token),
            Self::Tops { .. }
            | Self::LogIn { .. }
            | Self::Returner { .. }
            | Self::Runner(_)
            | Self::Wheel(_)
            | Self::Caller(_) => None,
        }
    }

    /// The request as `bridge.py` reads it, as a frame.
    ///
    /// # Errors
    /// [`FrameTooLong`]
    pub(crate) fn pack(&self) -> Result<Zeroizing<Vec<u8>>, FrameTooLong> {
        // Room for the length that the frame begins with.
        let mut packed = Zeroizing::new(vec![0; LENGTH]);
        let mut out = Encoder::new(&mut packed, Dialect::Bin);
        match self {
            Self::Render {
                subject,
                renderer,
                argument,
                input,
                saltenv,
                sls,
                path,
                defaults,
            } => {
                subject.pack(out.map(9).str("do").str("render"));
                out.str("renderer").str(renderer);
                out.str("argument").str(argument);
                out.str("input").value(input);
                out.str("saltenv").value(saltenv);
                out.str("sls").value(sls);
                out.str("path").str(path);
                out.str("defaults").map(defaults.len());
                for (name, value) in defaults {
                    out.str(name).value(value);
                }
            }
            Self::ExtPillar {
                subject,
                name,
                pillar,
                arguments,
            } => {
                subject.pack(out.map(5).str("do").str("ext_pillar"));
                out.str("name").str(name);
                out.str("pillar").value(pillar);
                out.str("arguments").value(arguments);
            }
            Self::Has { subject, name } => {
                subject.pack(out.map(3).str("do").str("has"));
                out.str("name").str(name);
            }
            Self::Function {
                subject,
                name,
                positional,
                named,
            } => {
                subject.pack(out.map(5).str("do").str("call"));
                out.str("name").str(name);
                arguments(&mut out, positional, named);
            }
            Self::Tops { name, opts } => {
                out.map(3).str("do").str("tops");
                out.str("name").str(name);
                out.str("opts").value(opts);
            }
            Self::LogIn {
                eauth,
                username,
                password,
            } => {
                out.map(4).str("do").str("log_in").str("eauth").str(eauth);
                out.str("username").str(username);
                out.str("password").str(password);
            }
            Self::Returner {
                name,
                needs,
                steps,
                patience,
            } => {
                out.map(5).str("do").str("returner").str("name").str(name);
                out.str("needs").str(needs);
                out.str("patience").uint(*patience as u64);
                out.str("steps").array(steps.len());
                for step in *steps {
                    out.array(step.len());
                    for call in step {
                        call.pack(&mut out);
                    }
                }
            }
            Self::Runner(call) => call.pack(out.map(7).str("do").str("runner")),
            Self::Wheel(call) => call.pack(out.map(7).str("do").str("wheel")),
            Self::Caller(call) => call.pack(out.map(7).str("do").str("caller")),
        }
        exchange::set_length(&mut packed)?;
        Ok(packed)
    }
}

impl Call {
    fn pack(&self, out: &mut Encoder<'_>) {
        out.str("fun").str(&self.fun);
        out.str("jid").str(&self.jid);
        out.str("tag").str(&self.tag);
        out.str("user").str(&self.user);
        arguments(out, &self.positional, &self.named);
    }
}

fn arguments(out: &mut Encoder<'_>, positional: &[Value], named: &[(String, Value)]) {
    out.str("positional").array(positional.len());
    for value in positional {
        out.value(value);
    }
    out.str("named").map(named.len());
    for (name, value) in named {
        out.str(name).value(value);
    }
}

fn text(out: &mut Encoder<'_>, text: Option<&str>) {
    match text {
        Some(text) => out.str(text),
        None => out.nil(),
    };
}
