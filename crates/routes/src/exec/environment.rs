//! The environment of a command: what the operator sets, and what a call may add.

use std::collections::BTreeMap;

use aegis_core::config::ExecConfig;
use aegis_sandbox::{DEFAULT_PATH, Network, PROXY_PORT};

/// A call may set so many variables, of so many bytes.
const MOST_VARIABLES: usize = 64;
const LONGEST_VALUE: usize = 32 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadVariable {
    #[error("the variable `{0}` may not be set by a call")]
    NotAllowed(String),
    #[error("the variable `{0}` has a NUL character or more than {LONGEST_VALUE} bytes")]
    Unusable(String),
    #[error("{0} variables are set; {MOST_VARIABLES} is the limit")]
    TooMany(usize),
}

/// The whole environment. What the operator sets wins over what a call asks for, and the way out wins over both.
pub(super) fn compose(
    config: &ExecConfig,
    asked: &BTreeMap<String, String>,
    network: Network,
) -> Result<Vec<(String, String)>, BadVariable> {
    if asked.len() > MOST_VARIABLES {
        return Err(BadVariable::TooMany(asked.len()));
    }
    let mut environment = BTreeMap::new();
    for (name, value) in asked {
        if !config.environment.lets_set(name) {
            return Err(BadVariable::NotAllowed(name.chars().take(100).collect()));
        }
        if value.contains('\0') || value.len() > LONGEST_VALUE {
            return Err(BadVariable::Unusable(name.clone()));
        }
        environment.insert(name.clone(), value.clone());
    }
    for name in &config.environment.pass {
        if let Some(value) = std::env::var_os(name).and_then(|value| value.into_string().ok()) {
            environment.insert(name.clone(), value);
        }
    }
    environment.extend(config.environment.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    if !environment.contains_key("PATH") {
        let directories = config.search_path.iter().map(String::as_str);
        let path: Vec<&str> = directories.chain([DEFAULT_PATH]).collect();
        environment.insert("PATH".into(), path.join(":"));
    }
    if network == Network::Proxy {
        show_way_out(&mut environment);
    }
    Ok(environment.into_iter().collect())
}

/// Tells programs of the proxy; nothing stays that would lead them past it.
pub(crate) fn show_way_out(environment: &mut BTreeMap<String, String>) {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        environment.insert(name.into(), proxy.clone());
    }
    for name in ["no_proxy", "NO_PROXY"] {
        environment.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(asked: &[(&str, &str)], network: Network) -> Result<BTreeMap<String, String>, BadVariable> {
        let mut config = ExecConfig { search_path: vec!["/opt/tools/bin".into()], ..ExecConfig::default() };
        config.environment.set.insert("LANG".into(), "C.UTF-8".into());
        let asked = asked.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        compose(&config, &asked, network).map(|all| all.into_iter().collect())
    }

    #[test]
    fn nothing_of_the_node_gets_in() {
        let environment = composed(&[("CI", "1")], Network::None).unwrap();
        assert_eq!(environment.keys().collect::<Vec<_>>(), ["CI", "LANG", "PATH"]);
        assert_eq!(environment["PATH"], format!("/opt/tools/bin:{DEFAULT_PATH}"));
    }

    #[test]
    fn what_loads_or_runs_code_is_refused() {
        for name in [
            "LD_PRELOAD",
            "BASH_ENV",
            "GIT_SSH_COMMAND",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "PATH",
            "HTTP_PROXY",
            "",
        ] {
            let refused = composed(&[(name, "x")], Network::None).unwrap_err();
            assert_eq!(refused, BadVariable::NotAllowed(name.to_owned()));
        }
        assert!(composed(&[("CI", "a\0b")], Network::None).is_err());
    }

    #[test]
    fn the_operator_has_the_last_word() {
        let environment = composed(&[("LANG", "xx")], Network::Proxy).unwrap();
        assert_eq!(environment["LANG"], "C.UTF-8");
        assert_eq!(environment["https_proxy"], "http://127.0.0.1:3128");
    }
}
