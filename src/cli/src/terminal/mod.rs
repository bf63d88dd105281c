//! Terminal output beside the results: the progress line, and text from outside made safe for a
//! terminal. It never goes to standard output.

mod copy_bar;
mod plain;
mod progress;

pub(crate) use copy_bar::{CopyBar, CopyUnit};
pub use plain::{plain, plain_lines};
pub use progress::{JobProgress, ProgressLine};
