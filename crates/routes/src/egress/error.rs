//! Why a fetch came to nothing.

use std::{fmt, time::Duration};

use aegis_core::{Failure, FailureKind, quantity::Size};

use super::address::AddressClass;

/// One hop of a fetch: the first address, or the redirect that was to be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// 0 for the address that was asked for.
    pub hop: u8,
    /// Scheme, host and port. The rest of a redirect is the other side's text and stays out of messages.
    pub target: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hop {
            0 => f.write_str(&self.target),
            hop => write!(f, "redirect {hop}, to {},", self.target),
        }
    }
}

/// Which rule stood in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    Scheme(String),
    /// A user name or password in the address.
    Credentials,
    Downgrade,
    Domain {
        host: String,
        /// The grant's own words for itself.
        grant: String,
    },
    /// The context's deny list names the host.
    Denied {
        host: String,
    },
    Address {
        class: AddressClass,
        /// The host is a name, and the resolver's answer is of that class.
        resolved: bool,
    },
}

impl Rule {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scheme(_) => "http and https only",
            Self::Credentials => "no credentials in addresses",
            Self::Downgrade => "no redirect from https to http",
            Self::Domain { .. } => "domain_allowlist",
            Self::Denied { .. } => "deny_list",
            Self::Address { .. } => "egress.allow_private",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(scheme) => write!(f, "only http and https are fetched, not {scheme}"),
            Self::Credentials => {
                f.write_str("the address carries a user name or a password; write it without them")
            }
            Self::Downgrade => f.write_str("it leads from https to unprotected http"),
            Self::Domain { host, grant } => {
                write!(f, "`{host}` is in none of the domains that the caller may reach (domain_allowlist")?;
                if !grant.is_empty() {
                    write!(f, " of {grant}")?;
                }
                f.write_str(")")
            }
            Self::Denied { host } => {
                write!(f, "`{host}` is on the deny list of the caller's security context")
            }
            Self::Address { class, resolved } => {
                let is = if *resolved { "its name resolves to" } else { "it is" };
                write!(f, "{is} {class}; only the operator can open it, with egress.allow_private")
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{step} was not fetched: {rule}")]
    Refused { step: Step, rule: Rule },
    #[error("{step} failed: the name does not resolve; check its spelling")]
    Unresolved { step: Step },
    #[error("{step} failed: no connection could be opened ({reason})")]
    Unreachable { step: Step, reason: String },
    #[error(
        "{step} failed: no secure connection ({reason}); an own certificate authority goes into egress.extra_ca_file"
    )]
    Tls { step: Step, reason: String },
    #[error("{step} failed: no connection within {}", shown(*.after))]
    SlowConnection { step: Step, after: Duration },
    #[error("{step} failed: the server did not speak proper HTTP ({reason})")]
    Broken { step: Step, reason: String },
    #[error("{step} answered with a redirect that has no readable address")]
    BadRedirect { step: Step },
    #[error("{step} was not fetched: the redirects go in a circle")]
    Circle { step: Step },
    #[error("{step} was not fetched: more than {limit} redirects (egress.max_redirects)")]
    TooManyRedirects { step: Step, limit: u8 },
    #[error("the body is larger than {}", Size(*.limit))]
    TooLarge { limit: u64 },
    #[error("the body is encoded as `{0}`, which was not asked for and can't be read")]
    Encoding(String),
    #[error("the body broke off: {0}")]
    BrokenBody(String),
    #[error("no complete answer within {}; try a longer time limit", shown(*.after))]
    Timeout { after: Duration },
    #[error("the call was given up before the answer came")]
    Cancelled,
}

impl FetchError {
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Refused { .. } => FailureKind::AddressNotAllowed,
            Self::TooLarge { .. } => FailureKind::ResponseTooLarge,
            Self::SlowConnection { .. } | Self::Timeout { .. } | Self::Cancelled => FailureKind::Timeout,
            _ => FailureKind::UpstreamUnavailable,
        }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        let failure = Self::new(error.kind(), error.to_string());
        match error {
            FetchError::Refused { step, rule } => {
                failure.with("hop", step.hop).with("target", step.target).with("rule", rule.name())
            }
            FetchError::TooLarge { limit } => failure.with("limit_bytes", limit),
            _ => failure,
        }
    }
}

/// `12s`, `1500ms`.
fn shown(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}
