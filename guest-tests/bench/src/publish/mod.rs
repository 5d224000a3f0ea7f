//! What every published measurement needs: the machine it was made on, medians with their spread, a section of a
//! document that is rewritten, what is to be shown and whether it is, bars and curves to look at.

mod bars;
mod curves;
mod machine;
mod publication;
mod section;
mod spread;
mod targets;

pub use bars::{Area, Bar, Caption, ChartError, FONT, draw_bars, short};
pub use curves::{Axes, Curve, Stroke, draw_curves, draw_legend};
pub use machine::Machine;
pub use publication::{Publication, PublishError};
pub use section::{DocumentError, Section};
pub use spread::{Spread, grouped};
pub use targets::{Case, Limit, Target, write_targets};
