//! Failures that the model can act on: they come back as tool results, not as protocol errors.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

macro_rules! failure_kinds {
    ($($variant:ident = $name:literal,)*) => {
        /// Wire names are part of the tools' contracts and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        pub enum FailureKind {
            $(#[serde(rename = $name)] $variant,)*
        }

        impl FailureKind {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

failure_kinds! {
    NotFound = "NOT_FOUND",
    PermissionDenied = "PERMISSION_DENIED",
    NotADirectory = "NotADirectory",
    IsADirectory = "IsADirectory",
    NotARegularFile = "NotARegularFile",
    NotUtf8 = "NotUtf8",
    FileTooLarge = "FileTooLarge",
    ReadOnlyVolume = "ReadOnlyVolume",
    DirectoryNotEmpty = "DirectoryNotEmpty",
    TargetNotFound = "TargetNotFound",
    TargetNotUnique = "TargetNotUnique",
    InvalidPattern = "InvalidPattern",
    AlreadyExists = "AlreadyExists",
    PatchFailed = "PATCH_APPLY_FAILED",
    VolumeQuotaExceeded = "VolumeQuotaExceeded",
    StorageError = "StorageError",
    HttpStatusError = "HttpStatusError",
    ResponseTooLarge = "ResponseTooLarge",
    AddressNotAllowed = "AddressNotAllowed",
    UpstreamUnavailable = "UpstreamUnavailable",
    UpstreamError = "UpstreamError",
    Timeout = "Timeout",
    UnknownSchemaKey = "UnknownSchemaKey",
    ConfigUnavailable = "ConfigUnavailable",
}

impl FailureKind {
    /// Whether such a failure is told in the node's own words alone: nothing was read, so there is nothing in it to
    /// distrust. Those that may repeat what a file, a link or another machine says are not.
    pub fn shows_nothing_read(self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::NotADirectory
                | Self::IsADirectory
                | Self::NotARegularFile
                | Self::FileTooLarge
                | Self::ReadOnlyVolume
                | Self::DirectoryNotEmpty
                | Self::AlreadyExists
                | Self::InvalidPattern
                | Self::VolumeQuotaExceeded
                | Self::UnknownSchemaKey
                | Self::ConfigUnavailable
        )
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A tool ran and could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    /// One line: what happened and what to try instead.
    pub message: String,
    /// Further members of the failure object, e.g. `supported_keys`.
    pub extra: Map<String, Value>,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), extra: Map::new() }
    }

    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(member.to_owned(), value.into());
        self
    }
}
