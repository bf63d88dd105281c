//! `publisher_acl_blacklist`: users that may publish nothing, and functions that nobody may
//! publish.

use saltern_python::expression::AnyOf;

/// The compiled option.
#[derive(Default)]
pub struct Blacklist {
    users: AnyOf,
    functions: AnyOf,
}

impl Blacklist {
    /// From the lists `users` and `modules` of the option.
    pub fn new<'a>(
        users: impl IntoIterator<Item = &'a str>,
        modules: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            users: AnyOf::new(users),
            functions: AnyOf::new(modules),
        }
    }

    /// Whether this user may not publish.
    pub fn bars_user(&self, user: &str) -> bool {
        self.users.may_match(user)
    }

    /// Whether any of these functions may not be published.
    pub fn bars_any_function<'a>(&self, functions: impl IntoIterator<Item = &'a str>) -> bool {
        functions
            .into_iter()
            .any(|function| self.functions.may_match(function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_functions_are_matched_like_stock_does() {
        let list = Blacklist::new(["root", "^(?!sudo_).*$"], ["cmd.*", "test.echo"]);
        assert!(list.bars_user("root"));
        assert!(list.bars_user("ann"));
        assert!(!list.bars_user("sudo_ann"));
        assert!(list.bars_any_function(["test.ping", "cmd.run"]));
        assert!(!list.bars_any_function(["test.ping"]));
        assert!(!Blacklist::default().bars_user("root"));
    }

    #[test]
    fn function_that_exhausts_the_step_limit_is_barred() {
        let list = Blacklist::new([], [r"(a|a|(?=a)a)*\1b"]);
        assert!(list.bars_any_function(["a".repeat(200).as_str()]));
        assert!(!list.bars_any_function(["test.ping"]));
    }
}
