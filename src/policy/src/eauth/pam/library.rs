//! The calls into libpam.
//!
//! The library is opened when it is needed: it is part of the system, and building this program
//! takes no headers of it. This is the one file of the crate with `unsafe` code. It runs in a
//! process that does nothing else and ends after one question, so nothing of the master is at
//! stake; the pointers are those of the C interface (`security/pam_appl.h`), each valid for as
//! long as PAM may use it: until `pam_end`.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

/// The name under which every Linux-PAM installs itself.
const LIBRARY: &CStr = c"libpam.so.0";

const SUCCESS: c_int = 0;
const CONVERSATION_ERROR: c_int = 19;
const PROMPT_HIDDEN: c_int = 1;
const PROMPT_SHOWN: c_int = 2;

/// The most questions that PAM asks at a time (`PAM_MAX_NUM_MSG`).
const MAX_QUESTIONS: c_int = 32;

#[repr(C)]
struct PamPrompt {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Reply {
    text: *mut c_char,
    unused: c_int,
}

type Converse =
    unsafe extern "C" fn(c_int, *mut *const PamPrompt, *mut *mut Reply, *mut c_void) -> c_int;

#[repr(C)]
struct Conversation {
    converse: Converse,
    data: *mut c_void,
}

type Start = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const Conversation,
    *mut *mut c_void,
) -> c_int;
type Step = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

struct Functions {
    start: Start,
    authenticate: Step,
    account: Step,
    end: Step,
}

/// Answers for PAM's conversation function.
struct PamConversation {
    name: CString,
    password: CString,
}

/// Why PAM cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum PamError {
    #[error("a part has a zero byte")]
    ZeroByte,
    #[error("the library \"{0}\" is not installed")]
    NoLibrary(String),
    #[error("\"{library}\" has no \"{function}\"")]
    NoFunction { library: String, function: String },
    #[error("pam_start failed with code {0}")]
    Start(c_int),
}

/// Whether PAM knows the user and lets the account in.
///
/// # Errors
/// When it cannot be asked.
pub(super) fn authenticate(service: &str, user: &str, password: &str) -> Result<bool, PamError> {
    let text = |text: &str| CString::new(text).map_err(|_| PamError::ZeroByte);
    let person = PamConversation {
        name: text(user)?,
        password: text(password)?,
    };
    let service = text(service)?;
    let functions = Functions::load()?;
    let conversation = Conversation {
        converse,
        data: (&raw const person).cast_mut().cast(),
    };
    let mut handle = null_mut();
    // SAFETY: the functions are those of libpam, whose signatures the types repeat; all texts end
    // with zero, and texts, conversation and person live until `pam_end` has returned.
    unsafe {
        let started = (functions.start)(
            service.as_ptr(),
            person.name.as_ptr(),
            &raw const conversation,
            &raw mut handle,
        );
        if started != SUCCESS {
            return Err(PamError::Start(started));
        }
        let mut code = (functions.authenticate)(handle, 0);
        if code == SUCCESS {
            code = (functions.account)(handle, 0);
        }
        (functions.end)(handle, code);
        Ok(code == SUCCESS)
    }
}

impl Functions {
    fn load() -> Result<Self, PamError> {
        // SAFETY: the name ends with zero; the library stays open until the process ends.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(PamError::NoLibrary(shown(LIBRARY)));
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is that of an open library, the name ends with zero.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            let missing = || PamError::NoFunction {
                library: shown(LIBRARY),
                function: shown(name),
            };
            (!found.is_null()).then_some(found).ok_or_else(missing)
        };
        let start = find(c"pam_start")?;
        let steps = [
            find(c"pam_authenticate")?,
            find(c"pam_acct_mgmt")?,
            find(c"pam_end")?,
        ];
        // SAFETY: these are the functions of these names, with the signatures of `pam_appl.h`.
        unsafe {
            let [authenticate, account, end] =
                steps.map(|step| transmute::<*mut c_void, Step>(step));
            Ok(Self {
                start: transmute::<*mut c_void, Start>(start),
                authenticate,
                account,
                end,
            })
        }
    }
}

fn shown(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Answers hidden questions with the password and others with the name, as stock does; what PAM
/// only says is passed over.
unsafe extern "C" fn converse(
    count: c_int,
    questions: *mut *const PamPrompt,
    replies: *mut *mut Reply,
    data: *mut c_void,
) -> c_int {
    let Some(count) = (1..=MAX_QUESTIONS)
        .contains(&count)
        .then(|| usize::try_from(count).unwrap_or_default())
    else {
        return CONVERSATION_ERROR;
    };
    // SAFETY: PAM hands over so many questions and a place for the replies; `data` is the person of
    // `authenticate`. PAM frees the replies and their texts with C's `free`, so both come from C's
    // allocator.
    unsafe {
        let person = &*data.cast::<PamConversation>();
        let answers = libc::calloc(count, size_of::<Reply>()).cast::<Reply>();
        if answers.is_null() {
            return CONVERSATION_ERROR;
        }
        for index in 0..count {
            let question = *questions.add(index);
            let text = match (*question).style {
                PROMPT_HIDDEN => &person.password,
                PROMPT_SHOWN => &person.name,
                _ => continue,
            };
            (*answers.add(index)).text = libc::strdup(text.as_ptr());
        }
        *replies = answers;
    }
    SUCCESS
}
