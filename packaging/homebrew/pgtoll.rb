class Pgtoll < Formula
  desc "Measures what PostgreSQL's safety costs, and checks that it works"
  homepage "https://github.com/pgtoll/pgtoll"
  url "https://github.com/pgtoll/pgtoll/releases/download/v@VERSION@/pgtoll-@VERSION@-vendored.tar.xz"
  sha256 "@SHA256@"
  license "PostgreSQL"

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "build", "--offline", "--locked", "--profile", "distribution", "--package", "pgtoll"
    bin.install "target/distribution/pgtoll"
    system bin/"pgtoll", "__package", "made"
    man1.install Dir["made/man/*"]
    bash_completion.install "made/completions/pgtoll.bash" => "pgtoll"
    zsh_completion.install "made/completions/_pgtoll"
    fish_completion.install "made/completions/pgtoll.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/pgtoll --version")
  end
end
