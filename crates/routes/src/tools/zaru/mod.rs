//! What a chat client's user interface offers the model.

mod switch_mode;

pub use self::switch_mode::SwitchMode;
use crate::Catalog;

pub fn register(catalog: Catalog) -> Catalog {
    catalog.with(SwitchMode)
}
