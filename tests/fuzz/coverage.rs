//! Fuzzing with feedback by coverage: libFuzzer calls the target, and keeps each input that reaches code
//! that none before it did. Only a build of `tests/fuzz/coverage.py` has this, for which each crate is
//! compiled with counters (`--cfg fuzzing`, as `cargo fuzz` names it).
//!
//! Not here: how long, and which corpus. What stands after `--` on the command line of the test goes to
//! libFuzzer as it is: <https://llvm.org/docs/LibFuzzer.html#options>.

// The two functions that libFuzzer calls, and the one that it is called by. Its contract: `data` is
// readable for `size` bytes during the call, and calls come from the thread that started it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::path::Path;
use std::ptr;

// For its C++ library, which is linked with it.
use libfuzzer_sys as _;

use crate::{Fuzz, hex};

type Attempt<'a> = &'a dyn Fn(&[u8]);

thread_local! {
    /// The target that runs in this thread, while it does.
    static ATTEMPT: Cell<Option<*const Attempt<'static>>> = const { Cell::new(None) };
}

unsafe extern "C" {
    /// Does not return: it ends the process with the code that says what became of the run.
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        attempt: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// The name under which libfuzzer-sys expects a target; nothing calls it.
#[unsafe(no_mangle)]
#[expect(improper_ctypes_definitions, reason = "libfuzzer-sys declares it so")]
extern "C" fn rust_fuzzer_test_input(_input: &[u8]) -> i32 {
    0
}

extern "C" fn attempt(data: *const u8, size: usize) -> c_int {
    let input = match size {
        0 => &[],
        // SAFETY: libFuzzer hands over `size` readable bytes for the time of the call.
        _ => unsafe { std::slice::from_raw_parts(data, size) },
    };
    if let Some(attempt) = ATTEMPT.get() {
        // SAFETY: `run` set it, in this thread, to a reference that lives as long as the driver runs.
        let attempt = unsafe { &*attempt };
        attempt(input);
    }
    0
}

/// The arguments of libFuzzer, when the test was started with some.
pub(crate) fn arguments() -> Option<Vec<String>> {
    let mut all = std::env::args().skip_while(|argument| argument != "--");
    all.next()?;
    Some(all.collect())
}

/// Hands a target to libFuzzer, with the seeds, the kept corpus and the words of `fuzz`. Ends the process.
///
/// # Panics
/// When the seeds cannot be written beside the program.
pub(crate) fn run(fuzz: &Fuzz<'_>, arguments: Vec<String>, target: impl Fn(&[u8])) {
    let program = std::env::current_exe().expect("a program has a path");
    let place = program.with_file_name("seeds").join(fuzz.name);
    write_seeds(fuzz, &place).expect("seeds can be written beside the program");
    // A merge starts this program again, by a shell, with arguments of its own behind these.
    let again: Vec<String> = std::env::args()
        .take_while(|argument| argument != "--")
        .collect();
    let again = format!("{} --", again.join(" "));
    let dictionary = format!("-dict={}", place.join("words").display());
    let entries = place.join("entries").display().to_string();
    let arguments: Vec<CString> = [again]
        .into_iter()
        .chain(arguments)
        .chain([dictionary, entries])
        .filter_map(|argument| CString::new(argument).ok())
        .collect();
    let mut pointers: Vec<*mut c_char> = arguments
        .iter()
        .map(|argument| argument.as_ptr().cast_mut())
        .chain([ptr::null_mut()])
        .collect();
    let mut count = c_int::try_from(arguments.len()).expect("a handful");
    let mut pointer = pointers.as_mut_ptr();
    let target: Attempt<'_> = &target;
    ATTEMPT.set(Some(ptr::from_ref(&target).cast()));
    // SAFETY: the arguments are C strings that outlive the call, with a null behind them, as `main`
    // gets them, and so does the target.
    unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut pointer, attempt) };
}

fn write_seeds(fuzz: &Fuzz<'_>, place: &Path) -> std::io::Result<()> {
    let entries = place.join("entries");
    fs::create_dir_all(&entries)?;
    for (number, entry) in fuzz.corpus().iter().enumerate() {
        fs::write(entries.join(format!("{number:05}")), entry)?;
    }
    let words = fuzz.words.iter().map(|word| {
        let escaped = hex(word)
            .as_bytes()
            .chunks(2)
            .fold(String::new(), |all, pair| {
                all + "\\x" + &String::from_utf8_lossy(pair)
            });
        format!("\"{escaped}\"\n")
    });
    fs::write(place.join("words"), words.collect::<String>())
}
