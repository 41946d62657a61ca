//! Where the admin port of a running gateway is, and its token: all that a command which asks it needs of the file.
//!
//! Whatever else is wrong with the file, or is only set where the gateway was started (keys of Endpoints), is no
//! reason not to ask.

use super::fault::Faults;
use super::file::{View, parse};
use super::schema::ROOT;
use crate::logic::snapshot::Secret;
use std::net::SocketAddr;

/// The way to an admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminDoor {
    /// `server.admin`.
    pub admin: SocketAddr,
    /// `server.admin_token`.
    pub token: Option<Secret>,
}

/// Reads a configuration file's text; `env` answers `${NAME}`.
///
/// # Errors
/// What is wrong with one of the two keys, or with the file's syntax.
pub fn admin_door(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<AdminDoor, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut faults = Faults::new(text);
    let tree = parse(text, &mut faults);
    let broken = faults.any();
    let top = View::top(&tree, ROOT, env);
    top.check(&mut faults);
    let server = top.table("server");
    let admin = server.text("admin").and_then(|typed| typed.parse().ok());
    let ours = |path: &str| matches!(path, "server.admin" | "server.admin_token");
    match (faults.sorted().iter().find(|fault| broken || ours(&fault.path)), admin) {
        (Some(fault), _) => Err(format!("{}:{}: {}: {}", fault.line, fault.column, fault.path, fault.text)),
        (None, None) => Err("server.admin is no IP address and port, like \"127.0.0.1:9545\"".to_owned()),
        (None, Some(admin)) => Ok(AdminDoor { admin, token: server.text("admin_token").map(Secret::new) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(text: &str) -> Result<AdminDoor, String> {
        admin_door(text, &|name| (name == "TOKEN").then(|| "sesame".to_owned()))
    }

    #[test]
    fn only_the_two_keys_count() {
        let right = AdminDoor { admin: SocketAddr::from(([127, 0, 0, 1], 7)), token: Some(Secret::new("sesame")) };
        let text = "[server]\nadmin = \"127.0.0.1:7\"\nadmin_token = \"${TOKEN}\"\nshards = \"many\"\n\
                    [[endpoint]]\nurl = \"http://${NO_KEY}\"\n";
        assert_eq!(door(text), Ok(right));
        let default = door("").unwrap();
        assert_eq!((default.admin.to_string(), default.token), ("127.0.0.1:9545".to_owned(), None));
    }

    #[test]
    fn what_is_wrong_with_them_is_said_and_shows_no_secret() {
        for (text, says) in [
            ("[server]\nadmin_token = \"${NO_TOKEN}\"", "the environment variable NO_TOKEN is not set"),
            ("[server]\nadmin = \"here\"", "no IP address"),
            ("[server]\nadmin = 7", "server.admin"),
            ("[server\nadmin_token = \"sesame\"", "1:"),
        ] {
            let told = door(text).unwrap_err();
            assert!(told.contains(says) && !told.contains("sesame"), "{text}: {told}");
        }
    }
}
