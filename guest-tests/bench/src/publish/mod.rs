//! What every published measurement needs: the machine it was made on, medians with their spread, a section of a
//! document that is rewritten, bars to look at.

mod bars;
mod machine;
mod section;
mod spread;

pub use bars::{Area, Bar, Caption, ChartError, FONT, draw_bars, short};
pub use machine::Machine;
pub use section::{DocumentError, Section};
pub use spread::{Spread, grouped};
