//! Types of elements: their names in Python, and what they are to DLPack, numpy, the C ABI and kernels.

use half::{bf16, f16};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use rushmem_abi::c::*;

/// A type of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dtype(&'static Row);

#[derive(PartialEq, Eq, Debug)]
struct Row {
    name: &'static str,
    bytes: usize,
    /// DLPack's `DLDataTypeCode`.
    dlpack: u8,
    /// PEP 3118's letter; none where there is no such type.
    format: Option<&'static std::ffi::CStr>,
    /// numpy's `typestr` without the byte order.
    numpy: &'static str,
    /// `RUSHMEM_INT32` and its like; -1 where reductions do not know it.
    code: i32,
    /// `RUSHMEM_ARG_*` as the element behind a kernel's pointer.
    arg: i32,
}

const fn row(
    name: &'static str,
    bytes: usize,
    dlpack: u8,
    format: Option<&'static std::ffi::CStr>,
    numpy: &'static str,
    code: i32,
    arg: i32,
) -> Row {
    Row { name, bytes, dlpack, format, numpy, code, arg }
}

/// DLPack 1.1, `dlpack.h`.
const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const COMPLEX: u8 = 5;
const BOOL: u8 = 6;
const FLOAT8_E4M3FN: u8 = 10;
const FLOAT8_E5M2: u8 = 12;

const UNKNOWN: i32 = RUSHMEM_ARG_UNKNOWN;

static ROWS: [Row; 17] = [
    row("bool", 1, BOOL, Some(c"?"), "b1", -1, RUSHMEM_ARG_UINT),
    row("int8", 1, INT, Some(c"b"), "i1", RUSHMEM_INT8, RUSHMEM_ARG_INT),
    row("uint8", 1, UINT, Some(c"B"), "u1", RUSHMEM_UINT8, RUSHMEM_ARG_UINT),
    row("int16", 2, INT, Some(c"h"), "i2", RUSHMEM_INT16, RUSHMEM_ARG_INT),
    row("uint16", 2, UINT, Some(c"H"), "u2", RUSHMEM_UINT16, RUSHMEM_ARG_UINT),
    row("int32", 4, INT, Some(c"i"), "i4", RUSHMEM_INT32, RUSHMEM_ARG_INT),
    row("uint32", 4, UINT, Some(c"I"), "u4", RUSHMEM_UINT32, RUSHMEM_ARG_UINT),
    row("int64", 8, INT, Some(c"l"), "i8", RUSHMEM_INT64, RUSHMEM_ARG_INT),
    row("uint64", 8, UINT, Some(c"L"), "u8", RUSHMEM_UINT64, RUSHMEM_ARG_UINT),
    row("float16", 2, FLOAT, Some(c"e"), "f2", RUSHMEM_HALF, UNKNOWN),
    row("bfloat16", 2, BFLOAT, None, "", RUSHMEM_BFLOAT16, UNKNOWN),
    row("float32", 4, FLOAT, Some(c"f"), "f4", RUSHMEM_FLOAT, RUSHMEM_ARG_FLOAT),
    row("float64", 8, FLOAT, Some(c"d"), "f8", RUSHMEM_DOUBLE, RUSHMEM_ARG_FLOAT),
    row("complex64", 8, COMPLEX, Some(c"Zf"), "c8", RUSHMEM_COMPLEX_FLOAT, UNKNOWN),
    row("complex128", 16, COMPLEX, Some(c"Zd"), "c16", RUSHMEM_COMPLEX_DOUBLE, UNKNOWN),
    row("float8_e4m3fn", 1, FLOAT8_E4M3FN, None, "", -1, UNKNOWN),
    row("float8_e5m2", 1, FLOAT8_E5M2, None, "", -1, UNKNOWN),
];

impl Dtype {
    pub(crate) fn name(self) -> &'static str {
        self.0.name
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.bytes
    }

    /// DLPack's code and bits.
    pub(crate) fn dlpack(self) -> (u8, u8) {
        (self.0.dlpack, (self.0.bytes * 8) as u8)
    }

    pub(crate) fn format(self) -> Option<&'static std::ffi::CStr> {
        self.0.format
    }

    /// numpy's `typestr`; none where numpy has no such type.
    pub(crate) fn typestr(self) -> Option<String> {
        let order = if self.0.bytes == 1 { '|' } else { '<' };
        (!self.0.numpy.is_empty()).then(|| format!("{order}{}", self.0.numpy))
    }

    /// What a kernel's pointer to such elements points at: kind and size; 0 where nothing is said.
    pub(crate) fn pointee(self) -> (i32, u32) {
        (self.0.arg, if self.0.arg == UNKNOWN { 0 } else { self.0.bytes as u32 })
    }

    /// The C ABI's number of it.
    pub(crate) fn code(self, py: Python<'_>, what: &str) -> PyResult<i32> {
        if self.0.code >= 0 {
            return Ok(self.0.code);
        }
        Err(crate::error::invalid(py, &format!("{what} does not take elements of type {}", self.0.name)))
    }

    /// One that is known to be there.
    pub(crate) fn of_name(name: &'static str) -> Dtype {
        Dtype(ROWS.iter().find(|row| row.name == name).expect("a row of the table"))
    }

    /// Its name, `numpy.float32`, `numpy.dtype`, `torch.float32`, `float` or `int`; looked up once for each.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Dtype> {
        static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let py = object.py();
        let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
        if let Ok(Some(row)) = known.get_item(object) {
            return row.extract::<usize>().map(|row| Dtype(&ROWS[row]));
        }
        let found = Dtype::by_name(object)?;
        let row = ROWS.iter().position(|row| row.name == found.0.name);
        // What cannot be a key is looked up each time.
        let _ = known.set_item(object, row);
        Ok(found)
    }

    fn by_name(object: &Bound<'_, PyAny>) -> PyResult<Dtype> {
        let name = if let Ok(name) = object.extract::<String>() {
            name
        } else if let Ok(name) = object.getattr("name").and_then(|name| name.extract::<String>()) {
            name
        } else if let Ok(name) = object.getattr("__name__").and_then(|name| name.extract::<String>()) {
            name
        } else {
            object.str()?.to_string()
        };
        let name = name.strip_prefix("torch.").unwrap_or(&name);
        let name = match name {
            "float" => "float64",
            "int" => "int64",
            "half" => "float16",
            "double" => "float64",
            name => name,
        };
        ROWS.iter().find(|row| row.name == name).map(Dtype).ok_or_else(|| {
            let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            PyTypeError::new_err(format!("{name:?} is no type of elements; there are: {}", names.join(", ")))
        })
    }

    /// What a buffer's format says (PEP 3118), where that is one of these types in this machine's byte order.
    pub(crate) fn of_format(format: &str, bytes: usize) -> Option<Dtype> {
        let letter = format.strip_prefix(['@', '=', '<']).unwrap_or(format);
        let kind = match letter {
            "?" => BOOL,
            "b" | "h" | "i" | "l" | "q" | "n" => INT,
            "B" | "H" | "I" | "L" | "Q" | "N" => UINT,
            "e" | "f" | "d" => FLOAT,
            "Zf" | "Zd" => COMPLEX,
            _ => return None,
        };
        ROWS.iter().find(|row| row.dlpack == kind && row.bytes == bytes).map(Dtype)
    }

    /// Of an object that says it, by its `dtype`.
    pub(crate) fn of_object(object: &Bound<'_, PyAny>) -> Option<Dtype> {
        let dtype = object.getattr_opt(pyo3::intern!(object.py(), "dtype")).ok()??;
        Dtype::of(&dtype).ok()
    }

    /// Whether elements of `other` may be these: where numpy has no such type, its bits come as integers.
    pub(crate) fn takes(self, other: Dtype) -> bool {
        let are_bits = matches!(other.0.dlpack, INT | UINT) && self.0.bytes == other.0.bytes;
        self == other || (self.0.format.is_none() && are_bits)
    }

    pub(crate) fn is_complex(self) -> bool {
        self.0.dlpack == COMPLEX
    }

    /// A value's bits, in the low bytes.
    pub(crate) fn bits(self, value: &Bound<'_, PyAny>) -> PyResult<u64> {
        let fits = |fits: bool, bits: u64| {
            if fits {
                Ok(bits)
            } else {
                Err(PyOverflowError::new_err(format!("{value} does not fit into {}", self.0.name)))
            }
        };
        let bits = self.0.bytes as u32 * 8;
        match (self.0.dlpack, self.0.bytes) {
            (BOOL, _) => Ok(u64::from(value.is_truthy()?)),
            (INT, _) => {
                let number: i64 = value.extract()?;
                let high = number >> (bits - 1);
                fits(high == 0 || high == -1, number as u64 & (u64::MAX >> (64 - bits)))
            }
            (UINT, _) => {
                let number: u64 = value.extract()?;
                fits(bits == 64 || number >> bits == 0, number)
            }
            (FLOAT, 4) => Ok(u64::from((value.extract::<f64>()? as f32).to_bits())),
            (FLOAT, 8) => Ok(value.extract::<f64>()?.to_bits()),
            (FLOAT, _) => Ok(u64::from(f16::from_f64(value.extract()?).to_bits())),
            (BFLOAT, _) => Ok(u64::from(bf16::from_f64(value.extract()?).to_bits())),
            _ => Err(PyTypeError::new_err(format!("no single values of type {}", self.0.name))),
        }
    }

    /// The value of bits.
    pub(crate) fn value(self, py: Python<'_>, bits: u64) -> PyResult<Py<PyAny>> {
        let width = self.0.bytes as u32 * 8;
        Ok(match (self.0.dlpack, self.0.bytes) {
            (BOOL, _) => (bits != 0).into_pyobject(py)?.to_owned().into_any().unbind(),
            (INT, _) => {
                let shift = 64 - width;
                (((bits << shift) as i64) >> shift).into_pyobject(py)?.into_any().unbind()
            }
            (UINT, _) => bits.into_pyobject(py)?.into_any().unbind(),
            (FLOAT, 4) => f64::from(f32::from_bits(bits as u32)).into_pyobject(py)?.into_any().unbind(),
            (FLOAT, 8) => f64::from_bits(bits).into_pyobject(py)?.into_any().unbind(),
            (FLOAT, _) => f16::from_bits(bits as u16).to_f64().into_pyobject(py)?.into_any().unbind(),
            (BFLOAT, _) => bf16::from_bits(bits as u16).to_f64().into_pyobject(py)?.into_any().unbind(),
            _ => return Err(PyTypeError::new_err(format!("no single values of type {}", self.0.name))),
        })
    }
}
