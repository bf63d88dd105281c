//! Python's values as text, its patterns and its paths, as CPython writes and reads them.
//!
//! Stock Salt is written in Python, so its replies, file names and matches show how Python prints a
//! value or reads a pattern. Every crate takes that from here. The differential test
//! (`tests/differential`) compares each function with CPython over generated values.
//!
//! This crate knows no value type: a type implements [`Object`], and [`mod@repr`] and [`json`] write
//! whatever does. It knows nothing of Salt but [`expression::AnyOf`].
//!
//! | module | Python |
//! |---|---|
//! | [`mod@repr`] | `repr`, `str` |
//! | [`number`] | `repr(float)`, `int(str)`, `float(str)`, `round(float, digits)` |
//! | [`text`] | `str.isspace`, `isprintable`, `strip`, `split`, `splitlines`, `title`, `center` |
//! | [`json`] | `json.dumps` |
//! | [`mod@format`] | `str.format` |
//! | [`pprint`] | `pprint.pformat` |
//! | [`textwrap`] | `textwrap.fill` |
//! | [`yaml`] | PyYAML's `yaml.dump` |
//! | [`node`] | values read into memory, and their order |
//! | [`shlex`] | `shlex.split`, `shlex.quote` |
//! | [`path`] | `posixpath.normpath`, `join`, `dirname` |
//! | [`fnmatch`] | `fnmatch.fnmatchcase` |
//! | [`expression`] | `re.match`, `re.fullmatch`, `re.search` |

pub mod expression;
pub mod fnmatch;
pub mod format;
pub mod json;
pub mod node;
pub mod number;
mod object;
pub mod path;
pub mod pprint;
mod re;
pub mod repr;
pub mod shlex;
pub mod text;
pub mod textwrap;
pub mod yaml;

pub use node::Node;
pub use object::{Object, Sequence, TextError, Visitor};
pub use repr::{repr, str};
