// A brush that writes SVG: what the painter uses of a 2D context, so that one code draws both.

/** The part of CanvasRenderingContext2D that the painter uses. */
export interface Brush {
  lineCap: CanvasLineCap
  lineJoin: CanvasLineJoin
  lineWidth: number
  globalAlpha: number
  fillStyle: string | CanvasGradient | CanvasPattern
  strokeStyle: string | CanvasGradient | CanvasPattern
  font: string
  textAlign: CanvasTextAlign
  textBaseline: CanvasTextBaseline
  setTransform(a: number, b: number, c: number, d: number, e: number, f: number): void
  setLineDash(dash: number[]): void
  save(): void
  restore(): void
  translate(x: number, y: number): void
  rotate(angle: number): void
  beginPath(): void
  moveTo(x: number, y: number): void
  lineTo(x: number, y: number): void
  closePath(): void
  arc(x: number, y: number, radius: number, from: number, to: number): void
  fill(rule?: CanvasFillRule): void
  stroke(): void
  fillRect(x: number, y: number, width: number, height: number): void
  strokeRect(x: number, y: number, width: number, height: number): void
  fillText(text: string, x: number, y: number): void
  strokeText(text: string, x: number, y: number): void
  measureText(text: string): { width: number }
}

const ANCHORS: Record<string, string> = { left: 'start', start: 'start', right: 'end', end: 'end', center: 'middle' }

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

const n = (value: number) => Number(value.toFixed(2)).toString()

export class SvgBrush implements Brush {
  lineCap: CanvasLineCap = 'butt'
  lineJoin: CanvasLineJoin = 'miter'
  lineWidth = 1
  globalAlpha = 1
  fillStyle: string | CanvasGradient | CanvasPattern = '#000'
  strokeStyle: string | CanvasGradient | CanvasPattern = '#000'
  font = '12px sans-serif'
  textAlign: CanvasTextAlign = 'left'
  textBaseline: CanvasTextBaseline = 'middle'
  #dash: number[] = []
  #path: string[] = []
  #move = ''
  readonly #saved: string[] = []
  readonly #parts: string[] = []

  /** The drawing as a document. */
  document(width: number, height: number, title: string): string {
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${n(width)} ${n(height)}" width="${n(width)}" height="${n(height)}"><title>${escaped(title)}</title>\n${this.#parts.join('\n')}\n</svg>\n`
  }

  /** Pixels of the screen are no matter here. */
  setTransform(): void {
    this.#move = ''
  }

  setLineDash(dash: number[]): void {
    this.#dash = dash
  }

  save(): void {
    this.#saved.push(this.#move)
  }

  restore(): void {
    this.#move = this.#saved.pop() ?? ''
  }

  translate(x: number, y: number): void {
    this.#move += `translate(${n(x)} ${n(y)})`
  }

  rotate(angle: number): void {
    this.#move += `rotate(${n((angle * 180) / Math.PI)})`
  }

  beginPath(): void {
    this.#path = []
  }

  moveTo(x: number, y: number): void {
    this.#path.push(`M${n(x)} ${n(y)}`)
  }

  lineTo(x: number, y: number): void {
    this.#path.push(`L${n(x)} ${n(y)}`)
  }

  closePath(): void {
    this.#path.push('Z')
  }

  /** Whole circles alone are drawn. */
  arc(x: number, y: number, radius: number): void {
    const r = n(radius)
    this.#path.push(`M${n(x + radius)} ${n(y)}A${r} ${r} 0 1 1 ${n(x - radius)} ${n(y)}A${r} ${r} 0 1 1 ${n(x + radius)} ${n(y)}Z`)
  }

  fill(rule: CanvasFillRule = 'nonzero'): void {
    this.#draw(`d="${this.#path.join('')}"`, `fill="${this.fillStyle}" fill-rule="${rule}"`, 'path')
  }

  stroke(): void {
    this.#draw(`d="${this.#path.join('')}"`, this.#pen(), 'path')
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.#draw(`x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}"`, `fill="${this.fillStyle}"`, 'rect')
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    this.#draw(`x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}"`, this.#pen(), 'rect')
  }

  fillText(text: string, x: number, y: number): void {
    this.#text(text, x, y, `fill="${this.fillStyle}"`)
  }

  strokeText(text: string, x: number, y: number): void {
    this.#text(text, x, y, this.#pen())
  }

  /** About the width that a sans-serif font takes: there is no font here to measure by. */
  measureText(text: string): { width: number } {
    return { width: text.length * 0.56 * Number(/([\d.]+)px/.exec(this.font)?.[1] ?? 12) }
  }

  #pen(): string {
    const dash = this.#dash.length > 0 ? ` stroke-dasharray="${this.#dash.map(n).join(' ')}"` : ''
    return `fill="none" stroke="${this.strokeStyle}" stroke-width="${n(this.lineWidth)}" stroke-linecap="${this.lineCap}" stroke-linejoin="${this.lineJoin}"${dash}`
  }

  #text(text: string, x: number, y: number, paint: string): void {
    const [, weight = 'normal', size = '12'] = /^(\d{3})?\s*([\d.]+)px/.exec(this.font) ?? []
    const attributes = `x="${n(x)}" y="${n(y)}" text-anchor="${ANCHORS[this.textAlign] ?? 'start'}" dominant-baseline="central" font-family="system-ui, sans-serif" font-size="${size}" font-weight="${weight}"`
    this.#draw(attributes, paint, 'text', escaped(text))
  }

  #draw(shape: string, paint: string, tag: string, content = ''): void {
    if (shape === 'd=""') return
    const move = this.#move === '' ? '' : ` transform="${this.#move}"`
    const alpha = this.globalAlpha === 1 ? '' : ` opacity="${n(this.globalAlpha)}"`
    this.#parts.push(`<${tag} ${shape} ${paint}${move}${alpha}${content === '' ? '/>' : `>${content}</${tag}>`}`)
  }
}
