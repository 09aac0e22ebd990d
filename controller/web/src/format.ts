// Figures as text.

const RATES = ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s']

/** Three significant digits, without trailing zeros. */
export function digits(value: number): string {
  if (value === 0) return '0'
  const shown = Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString()
  return shown
}

export function rate(bps: number | null): string {
  if (bps === null) return '–'
  let unit = 0
  let value = bps
  while (value >= 999.5 && unit < RATES.length - 1) {
    value /= 1000
    unit++
  }
  return `${digits(value)} ${RATES[unit]}`
}

export function duration(ns: number | null): string {
  if (ns === null) return '–'
  const size = Math.abs(ns)
  if (size < 1e3) return `${digits(ns)} ns`
  if (size < 1e6) return `${digits(ns / 1e3)} µs`
  if (size < 1e9) return `${digits(ns / 1e6)} ms`
  return `${digits(ns / 1e9)} s`
}

export function percent(share: number | null): string {
  if (share === null) return '–'
  const value = share * 100
  if (value === 0) return '0 %'
  if (value < 0.001) return '< 0.001 %'
  return `${value >= 10 ? value.toFixed(0) : Number(value.toPrecision(2)).toString()} %`
}

/** An age or a span in words that fit a table: 4 s, 3 min, 2 h, 5 d. */
export function age(ms: number | null): string {
  if (ms === null) return 'never'
  const seconds = Math.max(0, ms / 1000)
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`
  if (seconds < 120) return `${Math.floor(seconds)} s`
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`
  return `${Math.floor(seconds / 86_400)} d`
}

const pad = (value: number, width = 2) => String(value).padStart(width, '0')

export function clock(ms: number): string {
  const date = new Date(ms)
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`
}

export function day(ms: number): string {
  const date = new Date(ms)
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`
}

export function moment(ms: number): string {
  return `${day(ms)} ${clock(ms)}`
}

/** The time alone if it is of the day of another, else with its day. */
export function when(ms: number, nowMs: number): string {
  return day(ms) === day(nowMs) ? clock(ms) : moment(ms)
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
}

export function figure(value: number | null, unit: string): string {
  if (value === null) return '–'
  if (unit === 'ns') return duration(value)
  if (unit === 'bit/s') return rate(value)
  if (unit === 'share') return percent(value)
  return `${digits(value)} ${unit}`
}

const PROTOCOLS: Record<string, string> = { 1: 'ICMP', 6: 'TCP', 17: 'UDP', 58: 'ICMPv6' }

export function protocol(value: number | string): string {
  return PROTOCOLS[String(value)] ?? String(value)
}
