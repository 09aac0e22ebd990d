// Colours of a figure: a cividis-like ramp to 80 %, then two steps that differ in hue and in lightness.

import { conditionOf, excessNsOf, lossOf, shareOf } from '../stream/figures'

export type Figure = 'utilisation' | 'delay' | 'loss'

export interface Theme {
  dark: boolean
}

const RAMP_STEPS = 24
/** Colour indices: the ramp, then the two steps, then those of links without a figure. */
export const HIGH = RAMP_STEPS
export const FULL = RAMP_STEPS + 1
export const NO_FIGURE = RAMP_STEPS + 2
export const COLOURS = RAMP_STEPS + 3

const DARK = ['#3a5590', '#5f6c88', '#87867f', '#bdaf6c', '#fee838']
const LIGHT = ['#b3a870', '#918a70', '#70727a', '#43527c', '#0a2a5c']
const STEPS = { dark: ['#ff9a4d', '#ff4d6d'], light: ['#e0590c', '#8c0f24'] }
const GREY = { dark: '#4a5462', light: '#b9c0c9' }

function channels(hex: string): number[] {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))
}

/** Every colour of a theme, by index. */
export function palette(theme: Theme): string[] {
  const anchors = (theme.dark ? DARK : LIGHT).map(channels)
  const colours: string[] = []
  for (let i = 0; i < RAMP_STEPS; i++) {
    const at = (i / (RAMP_STEPS - 1)) * (anchors.length - 1)
    const low = Math.min(Math.floor(at), anchors.length - 2)
    const mixed = anchors[low].map((value, c) => Math.round(value + (anchors[low + 1][c] - value) * (at - low)))
    colours.push(`rgb(${mixed.join(',')})`)
  }
  const name = theme.dark ? 'dark' : 'light'
  return [...colours, ...STEPS[name], GREY[name]]
}

/** A position on the ramp from 0 to 1, where 0.8 and 0.95 begin the two steps. */
function stepOf(position: number): number {
  if (position >= 0.95) return FULL
  if (position >= 0.8) return HIGH
  return Math.max(0, Math.min(RAMP_STEPS - 1, Math.floor((position / 0.8) * RAMP_STEPS)))
}

/** Bounds of the logarithmic ramps: nothing, the first step, the second. */
export const DELAY_NS = [1e3, 10e6, 50e6] as const
export const LOSS = [1e-6, 1e-3, 1e-2] as const

function logarithmic(value: number, [low, high, full]: readonly [number, number, number]): number {
  if (value >= full) return 1
  if (value >= high) return 0.85
  return value <= low ? 0 : (0.8 * Math.log(value / low)) / Math.log(high / low)
}

function colourOfByte(figure: Figure, byte: number): number {
  if (figure === 'utilisation') {
    const share = shareOf(byte)
    return share === null ? NO_FIGURE : stepOf(share)
  }
  const value = figure === 'delay' ? excessNsOf(byte) : lossOf(byte)
  if (value === null) return NO_FIGURE
  return stepOf(logarithmic(value, figure === 'delay' ? DELAY_NS : LOSS))
}

/** The colour index of each of 256 bytes. */
export function colourTable(figure: Figure): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) => colourOfByte(figure, byte))
}

/** How bad a link is by one figure: higher is worse, a link that is down the worst, unknown below all. */
export function badness(planes: Uint8Array, links: number, link: number, figure: Figure): number {
  const condition = conditionOf(planes[link])
  if (condition === 'down') return 1000
  if (condition === 'nominal' || condition === 'unknown') return -1
  if (figure === 'utilisation') return planes[link]
  const byte = planes[(figure === 'delay' ? 1 : 2) * links + link]
  return byte === 255 ? -1 : byte
}
