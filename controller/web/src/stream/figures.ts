// The three bytes of a directed link: utilisation, delay above propagation, loss.

export const UNKNOWN = 251
export const DOWN = 254
export const NOMINAL = 255

export type Condition = 'up' | 'unknown' | 'down' | 'nominal'

export function conditionOf(utilisation: number): Condition {
  if (utilisation <= 250) return 'up'
  if (utilisation === DOWN) return 'down'
  return utilisation === NOMINAL ? 'nominal' : 'unknown'
}

/** The share of the rate in use, 0 to 1, or null if it is not known. */
export function shareOf(utilisation: number): number | null {
  return utilisation <= 250 ? utilisation / 250 : null
}

/** Delay above the link's own propagation, in ns, rounded to an eighth of an octave; 0 is below 1 us. */
export function excessNsOf(delay: number): number | null {
  if (delay === 255) return null
  return delay === 0 ? 0 : 1000 * 2 ** ((delay - 1) / 8)
}

/** The share of frames lost, 0 to 1, rounded to an eighth of an octave. */
export function lossOf(loss: number): number | null {
  if (loss === 255) return null
  return loss === 0 ? 0 : 2 ** ((loss - 254) / 8)
}

export function delayByte(excessNs: number): number {
  return excessNs < 1000 ? 0 : Math.min(254, 1 + Math.round(8 * Math.log2(excessNs / 1000)))
}

export function lossByte(share: number): number {
  return share <= 0 ? 0 : Math.max(1, Math.min(254, 254 + Math.round(8 * Math.log2(share))))
}
