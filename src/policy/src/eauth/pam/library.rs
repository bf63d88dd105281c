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
    Functions::load()?.ask(&service, &person)
}

impl Functions {
    fn ask(&self, service: &CStr, person: &PamConversation) -> Result<bool, PamError> {
        let conversation = Conversation {
            converse,
            data: (&raw const *person).cast_mut().cast(),
        };
        let mut handle = null_mut();
        // SAFETY: the functions are those of libpam, whose signatures the types repeat; all texts
        // end with zero, and texts, conversation and person live until `pam_end` has returned.
        unsafe {
            let started = (self.start)(
                service.as_ptr(),
                person.name.as_ptr(),
                &raw const conversation,
                &raw mut handle,
            );
            if started != SUCCESS {
                return Err(PamError::Start(started));
            }
            let mut code = (self.authenticate)(handle, 0);
            if code == SUCCESS {
                code = (self.account)(handle, 0);
            }
            (self.end)(handle, code);
            Ok(code == SUCCESS)
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: c_int = 7;

    /// Styles of prompts that are no questions (`PAM_ERROR_MSG`, `PAM_TEXT_INFO`).
    const MESSAGES: [c_int; 2] = [3, 4];

    /// Has the conversation answer prompts of these styles; `None` if it refuses.
    ///
    /// # Safety
    /// The conversation is one of `Functions::ask`, which has not returned.
    unsafe fn answers(conversation: &Conversation, styles: &[c_int]) -> Option<Vec<String>> {
        let prompt = |style: &c_int| PamPrompt {
            style: *style,
            text: c"?".as_ptr(),
        };
        let prompts: Vec<PamPrompt> = styles.iter().map(prompt).collect();
        let mut questions: Vec<*const PamPrompt> =
            prompts.iter().map(|one| &raw const *one).collect();
        let mut replies = null_mut();
        let count = c_int::try_from(styles.len()).unwrap();
        // SAFETY: there are so many questions, and PAM's duty of freeing the replies is done here.
        unsafe {
            let converse = conversation.converse;
            if converse(
                count,
                questions.as_mut_ptr(),
                &raw mut replies,
                conversation.data,
            ) != SUCCESS
            {
                return None;
            }
            let mut texts = Vec::new();
            for index in 0..styles.len() {
                let text = (*replies.add(index)).text;
                if text.is_null() {
                    texts.push("-".to_owned());
                } else {
                    texts.push(shown(CStr::from_ptr(text)));
                    libc::free(text.cast());
                }
            }
            libc::free(replies.cast());
            Some(texts)
        }
    }

    unsafe extern "C" fn start(
        service: *const c_char,
        user: *const c_char,
        conversation: *const Conversation,
        handle: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: as `Functions::ask` promises.
        unsafe {
            assert_eq!(CStr::from_ptr(service), c"the service");
            assert_eq!(CStr::from_ptr(user), c"ana");
            let conversation = &*conversation;
            let asked = [PROMPT_HIDDEN, MESSAGES[0], PROMPT_SHOWN, MESSAGES[1]];
            let expected = ["secret", "-", "ana", "-"].map(str::to_owned);
            assert_eq!(answers(conversation, &asked).unwrap(), expected);
            let most = answers(conversation, &[PROMPT_HIDDEN; 32]);
            assert_eq!(most.unwrap(), ["secret"; 32]);
            for count in [0, 33] {
                assert!(answers(conversation, &vec![PROMPT_HIDDEN; count]).is_none());
            }
            *handle = null_mut();
        }
        SUCCESS
    }

    unsafe extern "C" fn not_started(
        _: *const c_char,
        _: *const c_char,
        _: *const Conversation,
        _: *mut *mut c_void,
    ) -> c_int {
        FAILURE
    }

    unsafe extern "C" fn yes(_: *mut c_void, _: c_int) -> c_int {
        SUCCESS
    }

    unsafe extern "C" fn no(_: *mut c_void, _: c_int) -> c_int {
        FAILURE
    }

    unsafe extern "C" fn never(_: *mut c_void, _: c_int) -> c_int {
        panic!("it is not asked")
    }

    /// The account counts as well as the password (CVE-2022-22967).
    #[test]
    fn user_is_known_by_password_and_account() {
        let person = PamConversation {
            name: c"ana".into(),
            password: c"secret".into(),
        };
        let table: [(Step, Step, bool); 3] =
            [(yes, yes, true), (yes, no, false), (no, never, false)];
        for (authenticate, account, expected) in table {
            let pam = Functions {
                start,
                authenticate,
                account,
                end: yes,
            };
            assert_eq!(pam.ask(c"the service", &person).unwrap(), expected);
        }
        let pam = Functions {
            start: not_started,
            authenticate: never,
            account: never,
            end: never,
        };
        let asked = pam.ask(c"the service", &person);
        assert!(matches!(asked, Err(PamError::Start(FAILURE))));
    }

    #[test]
    fn zero_byte_in_a_part_is_an_error() {
        for (service, user, password) in [("a\0", "b", "c"), ("a", "b\0", "c"), ("a", "b", "c\0")] {
            let asked = authenticate(service, user, password);
            assert!(matches!(asked, Err(PamError::ZeroByte)));
        }
    }

    /// Where there is one.
    #[test]
    fn library_of_the_system_has_all_functions() {
        match Functions::load() {
            Ok(_) => {}
            Err(PamError::NoLibrary(name)) => assert_eq!(name, "libpam.so.0"),
            Err(error) => panic!("{error}"),
        }
    }
}
