//! Why a source cannot be used, or gives nothing. The texts go to the minion, in `_errors`; those about
//! arguments are Python's, which binds them in stock.

use saltern_config::yaml::YamlError;

use super::file_tree::TreeError;
use super::stack::StackError;
use crate::render::json::JsonError;
use crate::render::process::ProcessError;
use crate::render::python::ExtPillarFailure;

/// Why the arguments of a source are refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgumentError {
    /// An argument by a name that no parameter has.
    #[error("ext_pillar() got an unexpected keyword argument '{0}'")]
    Keyword(String),
    /// Arguments by name for a source that takes none.
    #[error("ext_pillar() got an unexpected keyword argument")]
    Keywords,
    /// Arguments by name whose names are no texts.
    #[error("keywords must be strings")]
    KeywordType,
    /// More arguments than there are parameters. Both counts have the minion's id and the pillar in
    /// them, as Python's.
    #[error("ext_pillar() takes at most {most} positional arguments but {given} were given")]
    TooMany {
        /// How many there may be.
        most: usize,
        /// How many there are.
        given: usize,
    },
    /// A parameter without an argument.
    #[error("ext_pillar() missing 1 required positional argument: '{0}'")]
    Missing(&'static str),
    /// An argument of another kind.
    #[error("\"{name}\" is {kind}, not {wanted}")]
    Kind {
        /// The parameter.
        name: String,
        /// The kind of its argument.
        kind: &'static str,
        /// The kind that it takes.
        wanted: &'static str,
    },
    /// An item of another kind in a list of texts.
    #[error("\"{name}\" has {kind} in it, not text")]
    Item {
        /// The parameter.
        name: &'static str,
        /// The kind of the item.
        kind: &'static str,
    },
    /// A header whose value is no text.
    #[error("the header \"{0}\" is no text")]
    Header(String),
    /// A file of `stack` that is something else.
    #[error("{0} is no path")]
    Path(&'static str),
    /// A condition of `stack` without the place of its value.
    #[error("\"{0}\" is not like \"grains:name\"")]
    Condition(String),
    /// A condition of `stack` on a place that there is not.
    #[error("Unknown traverse option \"{0}\", should be one of pillar, grains, opts")]
    Traverse(String),
    /// HTTP through a proxy.
    #[error("the option \"proxy_host\" is not supported by this master")]
    Proxy,
    /// HTTP with an authentication other than by name and password.
    #[error("the argument \"auth\" is not supported; use username and password")]
    Auth,
    /// A minion asks for a source that needs clones.
    #[error("it is not available on demand")]
    OnDemand,
}

/// Why a source gives no pillar.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The time of the whole pillar was over before.
    #[error("the pillar took too long to compile")]
    Time,
    /// The source is not built in.
    #[error(
        "\"{0}\" is not available without Python: built in are cmd_json, cmd_yaml, file_tree, git, \
         http_json, http_yaml, nodegroups and stack"
    )]
    NoPython(String),
    /// It failed in Python.
    #[error(transparent)]
    Python(#[from] ExtPillarFailure),
    /// The id would be more than a word of the command.
    #[error("the minion id \"{0}\" may not be part of a command")]
    MinionId(String),
    /// Its program has no result.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The answer of its server is no text.
    #[error("the answer is not UTF-8 text")]
    Encoding,
    /// The answer of its server is no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The answer of its server is no YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// `file_tree` failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// `stack` failed.
    #[error(transparent)]
    Stack(#[from] StackError),
}
