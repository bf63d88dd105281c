//! Templates, and what all of them have: navigation, user, command lines, what keeps a page up to date.
//!
//! Every value is escaped, whatever the name of its template; there is no way around it in a template.

use axum::http::StatusCode;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value, context};
use saltern_netapi::v1::Problem;
use serde::Serialize;

use crate::assets;
use crate::site::{Permissions, Visit, encoded};

/// A page before it is rendered.
pub(crate) struct View {
    /// The name of its template.
    pub(crate) template: &'static str,
    /// Title of the browser's tab.
    pub(crate) title: String,
    /// The entry of the navigation that it is part of.
    pub(crate) section: &'static str,
    /// Command lines that do the same.
    pub(crate) cli: Vec<String>,
    /// Tags of events after which it is fetched again.
    pub(crate) live: Vec<String>,
    /// Whether somebody waits for each of them.
    pub(crate) is_watched: bool,
    /// Values for the template.
    pub(crate) content: Value,
}

impl View {
    pub(crate) fn new(
        template: &'static str,
        section: &'static str,
        title: impl Into<String>,
        content: impl Serialize,
    ) -> Self {
        Self {
            template,
            title: title.into(),
            section,
            cli: Vec::new(),
            live: Vec::new(),
            is_watched: false,
            content: serialized(content),
        }
    }

    pub(crate) fn cli(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.cli.extend(lines);
        self
    }

    pub(crate) fn live<'a>(mut self, tags: impl IntoIterator<Item = &'a str>) -> Self {
        self.live.extend(tags.into_iter().map(str::to_owned));
        self
    }

    /// Notices of changes come soon after the events.
    pub(crate) fn watched(mut self) -> Self {
        self.is_watched = true;
        self
    }

    /// The page of an error.
    pub(crate) fn of_problem(problem: &Problem) -> Self {
        let content = ProblemView {
            status: problem.status().as_u16(),
            title: problem.title(),
            detail: problem.detail(),
            is_temporary: problem.status() == StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new("problem.html", "", problem.title(), content)
    }
}

/// A value of a template.
fn serialized(content: impl Serialize) -> Value {
    Value::from(Serde(content))
}

/// An error, for its page.
#[derive(Serialize)]
pub(crate) struct ProblemView<'a> {
    status: u16,
    title: &'a str,
    detail: &'a str,
    is_temporary: bool,
}

/// An entry of the navigation.
#[derive(Serialize)]
struct Entry {
    section: &'static str,
    path: &'static str,
    label: &'static str,
    /// The letter behind `g` that opens it.
    key: &'static str,
}

/// Whether a page is offered to a user.
type Offered = fn(&Permissions) -> bool;

/// The navigation.
static NAVIGATION: [(Entry, Offered); 12] = [
    (
        Entry {
            section: "now",
            path: "/console/",
            label: "Now",
            key: "n",
        },
        |_| true,
    ),
    (
        Entry {
            section: "jobs",
            path: "/console/jobs",
            label: "Jobs",
            key: "j",
        },
        |may| may.jobs,
    ),
    (
        Entry {
            section: "minions",
            path: "/console/minions",
            label: "Minions",
            key: "m",
        },
        |may| may.minions,
    ),
    (
        Entry {
            section: "drift",
            path: "/console/drift",
            label: "Drift",
            key: "d",
        },
        |may| may.returns,
    ),
    (
        Entry {
            section: "keys",
            path: "/console/keys",
            label: "Keys",
            key: "k",
        },
        |may| may.keys,
    ),
    (
        Entry {
            section: "run",
            path: "/console/run",
            label: "Run",
            key: "r",
        },
        |_| true,
    ),
    (
        Entry {
            section: "events",
            path: "/console/events",
            label: "Events",
            key: "e",
        },
        |_| true,
    ),
    (
        Entry {
            section: "batches",
            path: "/console/batches",
            label: "Batches",
            key: "b",
        },
        |may| may.batches,
    ),
    (
        Entry {
            section: "orchestrations",
            path: "/console/orchestrations",
            label: "Orchestrations",
            key: "o",
        },
        |may| may.jobs,
    ),
    (
        Entry {
            section: "reactor",
            path: "/console/reactor",
            label: "Reactor",
            key: "x",
        },
        |may| may.reactor,
    ),
    (
        Entry {
            section: "schedule",
            path: "/console/schedule",
            label: "Schedule",
            key: "s",
        },
        |may| may.schedule,
    ),
    (
        Entry {
            section: "audit",
            path: "/console/audit",
            label: "Audit",
            key: "a",
        },
        |may| may.audit,
    ),
];

/// Frame of every page.
#[derive(Serialize)]
pub(crate) struct Frame {
    layout: &'static str,
    title: String,
    section: &'static str,
    /// Nobody where nobody is logged in.
    user: Option<String>,
    csrf: String,
    theme: &'static str,
    entries: Vec<&'static Entry>,
    may: Permissions,
    cli: Vec<String>,
    /// The stream of changes, where the page has one.
    live: Option<String>,
    /// Path and query of this page.
    path: String,
    css: String,
    js: String,
    icon: String,
}

impl Frame {
    pub(crate) fn of(visit: &Visit, view: &View) -> Self {
        let tags: Vec<String> = view
            .live
            .iter()
            .map(|tag| format!("tag={}", encoded(tag)))
            .collect();
        let is_watched = view.is_watched.then(|| "quick".to_owned());
        let tags: Vec<String> = tags.into_iter().chain(is_watched).collect();
        let offered = NAVIGATION.iter().filter(|(_, offered)| offered(&visit.may));
        Self {
            layout: match visit.is_fragment {
                true => "fragment.html",
                false => "layout.html",
            },
            user: Some(visit.user.clone()),
            csrf: visit.csrf(),
            entries: offered.map(|(entry, _)| entry).collect(),
            may: visit.may,
            cli: view.cli.clone(),
            live: (!view.live.is_empty()).then(|| format!("/console/live?{}", tags.join("&"))),
            path: visit.path.clone(),
            ..Self::of_nobody(visit.theme, view)
        }
    }

    /// For a page before the log-in.
    pub(crate) fn of_nobody(theme: &'static str, view: &View) -> Self {
        let [css, js, icon] = assets::paths();
        Self {
            layout: "layout.html",
            title: view.title.clone(),
            section: view.section,
            user: None,
            csrf: String::new(),
            theme,
            entries: Vec::new(),
            may: Permissions::default(),
            cli: Vec::new(),
            live: None,
            path: "/console/".to_owned(),
            css,
            js,
            icon,
        }
    }
}

/// The embedded templates.
pub(crate) struct Templates(Environment<'static>);

/// Names and sources.
const SOURCES: [(&str, &str); 27] = [
    ("audit.html", include_str!("../templates/audit.html")),
    ("batches.html", include_str!("../templates/batches.html")),
    ("drift.html", include_str!("../templates/drift.html")),
    ("event.html", include_str!("../templates/event.html")),
    (
        "event_row.html",
        include_str!("../templates/event_row.html"),
    ),
    ("events.html", include_str!("../templates/events.html")),
    ("fragment.html", include_str!("../templates/fragment.html")),
    ("job.html", include_str!("../templates/job.html")),
    ("jobs.html", include_str!("../templates/jobs.html")),
    ("keys.html", include_str!("../templates/keys.html")),
    (
        "keys_confirm.html",
        include_str!("../templates/keys_confirm.html"),
    ),
    ("layout.html", include_str!("../templates/layout.html")),
    ("login.html", include_str!("../templates/login.html")),
    ("macros.html", include_str!("../templates/macros.html")),
    ("minion.html", include_str!("../templates/minion.html")),
    ("minions.html", include_str!("../templates/minions.html")),
    ("now.html", include_str!("../templates/now.html")),
    (
        "orchestration.html",
        include_str!("../templates/orchestration.html"),
    ),
    (
        "orchestrations.html",
        include_str!("../templates/orchestrations.html"),
    ),
    ("problem.html", include_str!("../templates/problem.html")),
    ("reactor.html", include_str!("../templates/reactor.html")),
    ("report.html", include_str!("../templates/report.html")),
    ("return.html", include_str!("../templates/return.html")),
    ("run.html", include_str!("../templates/run.html")),
    (
        "run_confirm.html",
        include_str!("../templates/run_confirm.html"),
    ),
    ("schedule.html", include_str!("../templates/schedule.html")),
    (
        "shortcuts.html",
        include_str!("../templates/shortcuts.html"),
    ),
];

impl Templates {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.remove_filter("safe");
        let mut syntax = SyntaxConfig::builder();
        environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
        for (name, source) in SOURCES {
            environment.add_template(name, source)?;
        }
        Ok(Self(environment))
    }

    /// The page.
    pub(crate) fn render(&self, view: &View, frame: &Frame) -> Result<String, Error> {
        let template = self.0.get_template(view.template)?;
        template.render(context! { frame => serialized(frame), view => view.content.clone() })
    }

    /// A part of a page, without anything around it.
    pub(crate) fn part(&self, template: &str, view: impl Serialize) -> Result<String, Error> {
        let template = self.0.get_template(template)?;
        template.render(context! { view => serialized(view) })
    }
}
