//! PDUs, encoded and decoded.

use std::hint::black_box;

use nvme_tcp::wire::{CommonHeader, Framing, Pdu, PduError};

use super::meter::Work;

/// Encodes a PDU with this number of bytes of data.
pub(super) fn encode(pdu: Pdu, data_bytes: usize) -> Work {
    let (data, mut out) = (vec![0xa5; data_bytes], Vec::with_capacity(8192));
    Box::new(move |meter, times| {
        for _ in 0..times {
            out.clear();
            meter.count(|| black_box(&pdu).emit(&Framing::default(), &data, &mut out));
            black_box(&out);
        }
    })
}

/// Decodes the header of a PDU with this number of bytes of data.
pub(super) fn decode(pdu: Pdu, data_bytes: u32) -> Work {
    let mut header = Vec::new();
    pdu.emit_header(&Framing::default(), data_bytes, &mut header);
    Box::new(move |meter, times| {
        for _ in 0..times {
            assert_eq!(meter.count(|| decoded(black_box(&header))), Ok(pdu));
        }
    })
}

fn decoded(header: &[u8]) -> Result<Pdu, PduError> {
    let common = CommonHeader::parse(header)?;
    Pdu::parse(&common, &Framing::default().layout(&common)?, header)
}
